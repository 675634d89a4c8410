"""Guards of joins: what is judged, spent and kept in one transaction, and what evidence is believed."""

from tests.guards.guard import Guard

_JOIN = "tests/integration/join/test_join_token.py"
_ATTESTORS = "tests/unit/handlers/attestors"
_JUDGED = "tests/integration/attestors"

JOINS: tuple[Guard, ...] = (
    Guard(
        "inbox claim",
        "2",
        "inbox_claims_everything",
        f"{_JOIN}::test_refusal_that_is_redelivered_is_recorded_once",
    ),
    Guard(
        "spend under lock",
        "2",
        "tokens_are_not_counted_down_in_the_batch",
        f"{_JOIN}::test_one_use_admits_one_of_a_batch",
    ),
    Guard(
        "one CSR, one admission",
        "2",
        "csrs_are_not_remembered",
        f"{_JOIN}::test_same_csr_in_other_bytes_gets_the_same_admission",
    ),
    Guard(
        "overtaken by its own admission",
        "2",
        "nobody_is_overtaken",
        "tests/integration/join/test_asked_twice.py::test_who_is_overtaken_by_its_own_admission_hears_of_that",
    ),
    Guard(
        "overtaken by its own renewal",
        "2",
        "nobody_is_overtaken",
        "tests/integration/join/test_asked_twice.py::test_who_is_overtaken_by_its_own_renewal_hears_of_that",
    ),
    Guard(
        "key of another node",
        "6",
        "key_owners_are_ignored",
        f"{_JOIN}::test_key_on_another_nodes_certificate_is_refused",
    ),
    Guard(
        "seal binds the request",
        "6",
        "seals_bind_nothing",
        f"{_JOIN}::test_refusal_says_nothing_outside_and_everything_inside[evidence moved to another CSR]",
    ),
    Guard("ban wins", "10", "bans_are_not_read", f"{_JOIN}::test_ban_of_a_token_wins"),
    Guard(
        "reclaim stays in its place",
        "8",
        "reclaim_reaches_everywhere",
        f"{_JOIN}::test_reclaim_reaches_only_the_tokens_own_place",
    ),
    Guard(
        "admission that no longer stands",
        "2",
        "every_admission_stands",
        f"{_JOIN}::test_admission_that_no_longer_stands_is_not_repeated",
    ),
    Guard(
        "approval is of one grant",
        "7",
        "approvals_are_for_anything",
        "tests/integration/join/test_approvals.py::test_approval_of_another_grant_does_not_count",
    ),
    Guard(
        "decision names a version",
        "7",
        "decisions_are_about_anything",
        "tests/integration/operators/test_requests.py::test_a_request_that_changed_since_it_was_seen_is_not_approved",
    ),
    Guard(
        "slot claim",
        "5",
        "slots_are_not_claimed",
        "tests/integration/join/test_slots.py::test_bucket_grants_up_to_its_bound",
    ),
    Guard(
        "slots are made apart",
        "5",
        "slots_are_made_in_the_batch",
        "tests/integration/join/test_slots.py::test_nobody_waits_for_the_batch_that_meets_a_reason_first",
    ),
    Guard(
        "exempt slots",
        "5",
        "no_slot_is_exempt",
        "tests/integration/join/test_slots.py::test_noise_of_one_reason_hides_no_other",
    ),
    Guard(
        "tenant rule",
        "8",
        "nobodys_refusals_are_a_tenants",
        "tests/unit/handlers/join/test_outcomes.py::test_refusal_without_a_tenant_is_roots",
    ),
    Guard(
        "sums of refusals",
        "5",
        "periods_forget_what_came_before",
        "tests/integration/keeper/test_summaries.py::test_a_bucket_is_told_at_its_start_while_it_goes_on_and_at_its_end",
    ),
    Guard(
        "certificates are one line",
        "10",
        "chains_may_be_any_graph",
        f"{_ATTESTORS}/test_x509pop.py::test_costly_evidence_is_refused_before_any_signature[loop]",
    ),
    Guard(
        "possession is proved",
        "6",
        "possession_is_believed",
        f"{_JUDGED}/test_x509pop.py::test_signature_covers_domain_role_nonce_and_csr",
    ),
    Guard(
        "one certificate, one node",
        "2",
        "certificates_bind_to_nobody",
        f"{_JUDGED}/test_x509pop.py::test_same_certificate_from_a_second_key_is_refused",
    ),
    Guard(
        "an image is one fact",
        "10",
        "images_are_enough_alone",
        f"{_JUDGED}/test_image.py::test_met_expectation_is_no_second_fact",
    ),
    Guard(
        "assertions are signed",
        "6",
        "assertions_are_believed",
        f"{_JUDGED}/test_discovery.py::test_claimed_mac_and_serial_never_admit",
    ),
    Guard(
        "assertions count once",
        "2",
        "uses_are_not_kept",
        f"{_JUDGED}/test_discovery.py::test_assertion_counts_once",
    ),
    Guard(
        "weak UUIDs name nobody",
        "10",
        "every_uuid_identifies",
        f"{_JUDGED}/test_image.py::test_weak_uuid_names_no_machine",
    ),
    Guard(
        "living nodes send to the list",
        "10",
        "living_nodes_are_nobodys",
        f"{_JUDGED}/test_discovery.py::test_living_node_keeps_a_known_ramdisk_waiting",
    ),
    Guard(
        "an instance joins once",
        "2",
        "uses_are_not_kept",
        f"{_JUDGED}/test_cloud_iid.py::test_it_stays_used_up_when_its_node_is_gone",
    ),
    Guard(
        "clouds sign what counts",
        "6",
        "clouds_are_believed",
        f"{_ATTESTORS}/cloud_iid/test_aws.py::test_a_certificate_that_comes_along_does_not_count",
    ),
)
