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
_CRYPTO = "tests/unit/handlers/crypto"
_LIFE = "tests/integration/life"
_AGENT = "tests/unit/streams/agent"
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
        "a key statement is proved for the new key",
        "7",
        "key_statements_are_believed",
        f"{_LIFE}/test_renewal.py::test_key_statement_holds_for_the_very_key_only",
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
        "tests/integration/join/test_revocations.py::test_ban_waits_for_the_batches_that_run",
    ),
    Guard(
        "commands are checked at dispatch",
        "10",
        "commands_are_checked_once",
        f"{_LIFE}/test_commands.py::test_command_that_is_not_allowed_any_more_stops_at_dispatch",
    ),
    Guard(
        "commands are checked when they are sent",
        "10",
        "anything_may_be_sent",
        f"{_LIFE}/test_commands.py::test_kind_that_the_certificate_does_not_allow_is_refused_and_written_down",
    ),
    Guard(
        "nodes report of what they were told",
        "7",
        "reports_are_believed",
        f"{_LIFE}/test_commands.py::test_nobody_reports_for_another_node_or_of_what_was_not_handed_out",
    ),
    Guard(
        "commands are asked for with the node's key",
        "6",
        "renewals_are_believed",
        f"{_LIFE}/test_commands.py::test_wrong_request_is_refused_like_everything_else_and_learns_nothing[other reports]",
    ),
    Guard(
        "an agent knows what it was told",
        "2",
        "commands_are_not_remembered",
        f"{_AGENT}/test_command_journal.py::test_command_that_comes_again_is_not_run_again",
    ),
    Guard(
        "handlers are root's or the agent's",
        "10",
        "handlers_may_be_anybodys",
        f"{_AGENT}/test_commands.py::test_agent_does_not_start_with_handlers_that_others_can_change",
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
        "who is taken out is out",
        "10",
        "nobody_is_taken_out",
        f"{_CONSOLE}/test_certificates.py::test_an_operator_who_is_taken_out_is_out_at_once",
    ),
    Guard(
        "a certificate's session needs it",
        "10",
        "cookies_are_enough",
        f"{_CONSOLE}/test_certificates.py::test_a_session_is_of_no_use_without_its_certificate",
    ),
    Guard(
        "authors have their own role",
        "3",
        "authors_speak_as_we_do",
        "tests/integration/join/test_author_roles.py::test_statements_reach_what_was_granted",
    ),
    Guard(
        "named certificates are read again",
        "2",
        "named_certificates_are_read_once",
        "tests/integration/join/test_named_certificates.py::test_certificate_that_was_read_for_somebody_else_is_read_again",
    ),
    Guard(
        "explanations look back",
        "3",
        "explanations_see_today",
        "tests/integration/explain/test_verdicts.py::test_each_attestor_and_what_became_of_its_nodes",
    ),
    Guard(
        "explanations know of commits that come late",
        "3",
        "what_was_stamped_was_seen",
        "tests/integration/explain/test_in_between.py::test_a_ban_that_had_not_committed_when_the_attempt_began",
    ),
    Guard(
        "scratch is rolled back",
        "3",
        "scratch_is_committed",
        "tests/integration/explain/test_own_sql.py::test_it_writes_as_its_author_and_nothing_stays",
    ),
    Guard(
        "facts are harmless",
        "9",
        "facts_are_shown_as_they_are",
        "tests/unit/handlers/explain/test_trace.py::test_bytes_are_never_shown",
    ),
    Guard(
        "purges leave the digests",
        "10",
        "purges_forget_uses",
        "tests/integration/operators/test_purges.py::test_what_was_used_up_banned_or_admitted_stays_so",
    ),
    Guard(
        "whoever ends workers is not judged again",
        "1",
        "nobody_counts_attempts",
        "tests/integration/join/test_attempts.py::test_request_that_ends_its_workers_is_answered_unavailable_the_third_time",
    ),
    Guard(
        "suspects are judged alone",
        "1",
        "suspects_are_judged_together",
        "tests/integration/join/test_attempts.py::test_what_a_worker_ended_with_is_judged_with_nothing_beside_it",
    ),
    Guard(
        "who was verified is no suspect",
        "1",
        "suspicion_stays",
        "tests/integration/join/test_attempts.py::test_worker_that_ends_after_the_verification_counts_nothing",
    ),
    Guard(
        "time-outs rest an attestor",
        "1",
        "attestors_never_rest",
        "tests/unit/handlers/join/test_patience.py::test_five_in_a_row_and_only_in_a_row_rest_the_attestor",
    ),
    Guard(
        "no more is taken on than can be sent",
        "1",
        "gateways_take_on_whatever_comes",
        "tests/unit/streams/gateway/test_overload.py::test_who_finds_no_room_on_the_way_is_told_when_to_come_again",
    ),
    Guard(
        "a client that is cut off says nothing of Kafka",
        "1",
        "who_leaves_frees_the_way_to_kafka",
        "tests/unit/streams/gateway/test_overload.py::test_a_client_that_is_cut_off_says_nothing_of_kafka",
    ),
    Guard(
        "a storm comes again in a row",
        "1",
        "machines_come_again_at_once",
        "tests/unit/streams/gateway/test_shedding.py::test_machines_that_are_turned_away_come_again_one_after_the_other",
    ),
    Guard(
        "nobody waits for a good-bye",
        "10",
        "good_byes_are_waited_for",
        "tests/integration/store/test_hanging_up.py",
    ),
    Guard(
        "a stall is no author's",
        "1",
        "stalls_are_the_authors",
        "tests/integration/join/test_stalls.py::test_author_is_not_blamed_for_an_own_statement_that_stalls",
    ),
    Guard(
        "an attestor's own bound",
        "1",
        "every_verification_has_a_place",
        "tests/unit/handlers/join/test_patience.py::test_attestor_has_no_more_at_once_than_it_says",
    ),
    Guard(
        "attestors are checked",
        "10",
        "attestors_are_taken_as_they_are",
        "tests/unit/handlers/test_definition.py::test_all_faults_are_told_at_once",
    ),
    Guard(
        "authors' tables are theirs",
        "3",
        "migrations_make_what_they_like",
        "tests/integration/store/test_plugin_migrations.py::test_what_is_not_its_own_is_refused_and_leaves_nothing",
    ),
    Guard(
        "signing keys are vouched for",
        "6",
        "handovers_are_believed",
        f"{_CRYPTO}/test_belief.py::test_what_the_trusted_key_did_not_vouch_for_is_refused",
    ),
    Guard(
        "no way back",
        "6",
        "keys_left_behind_count",
        f"{_CRYPTO}/test_belief.py::test_a_key_that_was_left_behind_leads_nowhere",
    ),
    Guard(
        "retired keys sign nothing",
        "6",
        "the_first_signing_key_stays",
        f"{_CRYPTO}/test_keyrotation.py::test_a_retired_signing_key_signs_nothing",
    ),
    Guard(
        "overlap",
        "1",
        "nothing_needs_a_retired_key",
        f"{_CRYPTO}/test_keyrotation.py::test_a_key_that_is_needed_stays_unless_somebody_else_has_it",
    ),
    Guard(
        "machines' traces are linked",
        "6",
        "any_trace_is_adopted",
        "tests/integration/join/test_tracing.py::test_a_machines_own_context_is_linked_and_never_adopted",
    ),
    Guard(
        "sampling is ours",
        "6",
        "flags_over_the_wire_count",
        "tests/unit/streams/tracing/test_sdk.py::test_a_flag_over_the_wire_decides_nothing",
    ),
    Guard(
        "a collector's credentials are not quoted",
        "9",
        "exporters_say_everything",
        "tests/unit/streams/tracing/test_opening.py::test_a_credential_that_cannot_be_sent_is_not_quoted",
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
    Guard(
        "transaction ids of elsewhere",
        "1",
        "transaction_ids_are_not_compared",
        "tests/integration/backup/test_backup.py::test_a_dump_in_another_cluster_is_noticed_before_anything_is_published",
    ),
    Guard("producer replacement", "5", "a_wedged_producer_is_kept", "tests.faults"),
    Guard("epoch fence", "1", "cursors_move_without_a_fence", "tests.faults"),
    Guard("savepoint", "3", "refusals_keep_what_was_written", "tests.faults"),
    Guard("ordered journal", "1", "numbers_are_drawn_ahead", "tests.faults"),
    Guard("inbox claim, over processes", "2", "every_copy_is_judged", "tests.faults"),
    Guard("spend under lock, over processes", "2", "tokens_are_not_locked", "tests.faults"),
)
