"""The guards: what each promises, what switches it off, and the test that must fail then.

`off` is a function of `tests.guards.switches` that replaces the guard in a running interpreter.
`test` is a pytest node id; or `tests.faults`, for what only shows when processes die: then `off` are
functions of `tests.guards.process_switches` too, and the scenario stands in `tests.faults.guards`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard."""

    name: str
    promise: str
    """The number of the promise in docs/promises.md."""
    off: str
    test: str


_JOIN = "tests/integration/join/test_join_token.py"
_ATTESTORS = "tests/unit/handlers/attestors"
_LIFE = "tests/integration/life"
_CONSOLE = "tests/integration/console"
_JUDGED = "tests/integration/attestors"

GUARDS: tuple[Guard, ...] = (
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
        "csrs_are_not_remembered_in_the_batch",
        f"{_JOIN}::test_same_csr_in_other_bytes_gets_the_same_admission",
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
    Guard(
        "second key is theft",
        "2",
        "second_keys_are_late",
        f"{_LIFE}/test_renewal.py::test_second_key_from_one_certificate_evicts_the_node",
    ),
    Guard(
        "renewal is signed",
        "6",
        "renewals_are_believed",
        f"{_LIFE}/test_renewal.py::test_wrong_renewal_is_refused_like_everything_else[CSR swapped]",
    ),
    Guard(
        "nodes are judged by their version",
        "2",
        "versions_are_not_compared",
        f"{_LIFE}/test_renewal.py::test_racing_renewals_with_two_keys_leave_no_node_with_a_thief",
    ),
    Guard(
        "a ban waits for the joins that run",
        "10",
        "bans_wait_for_nobody",
        f"{_LIFE}/test_standing.py::test_ban_wins_against_joins_and_renewals_that_run",
    ),
    Guard(
        "anchors are read again",
        "10",
        "anchors_are_read_once",
        "tests/integration/join/test_revocations.py::test_revocation_that_comes_while_evidence_is_judged_wins",
    ),
    Guard(
        "proofs are carried",
        "10",
        "proofs_need_not_be_carried",
        "tests/integration/join/test_proving.py::test_proof_counts_for_what_it_is",
    ),
    Guard(
        "operators stay in their tenant",
        "8",
        "tenants_have_no_walls",
        f"{_CONSOLE}/test_api.py::test_what_is_outside_a_tenant_does_not_exist",
    ),
    Guard(
        "operators stay in their role",
        "10",
        "roles_are_names",
        f"{_CONSOLE}/test_api.py::test_a_role_does_what_it_may_and_nothing_more",
    ),
    Guard(
        "forms are ours",
        "10",
        "forms_are_from_anywhere",
        f"{_CONSOLE}/test_pages.py::test_a_form_of_somebody_else_does_nothing",
    ),
    Guard(
        "authors have their own role",
        "3",
        "authors_speak_as_we_do",
        "tests/integration/join/test_author_roles.py::test_statements_reach_what_was_granted",
    ),
    # What only shows when processes die: python -m tests.faults --guard NAME.
    Guard(
        "response before acknowledgement",
        "1",
        "answers_come_after_the_offset",
        "tests.faults",
    ),
    Guard(
        "contiguous acknowledgement",
        "1",
        "some_batches_are_slow+the_highest_offset_counts",
        "tests.faults",
    ),
    Guard("producer replacement", "5", "a_wedged_producer_is_kept", "tests.faults"),
    Guard("epoch fence", "1", "cursors_move_without_a_fence", "tests.faults"),
    Guard("savepoint", "3", "refusals_keep_what_was_written", "tests.faults"),
    Guard("ordered journal", "1", "numbers_are_drawn_ahead", "tests.faults"),
    Guard("inbox claim, over processes", "2", "every_copy_is_judged", "tests.faults"),
    Guard("spend under lock, over processes", "2", "tokens_are_not_locked", "tests.faults"),
)
