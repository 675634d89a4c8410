"""Guards of what comes after a join: a node's life and commands, operators, and what is explained and forgotten."""

from tests.guards.guard import Guard

_LIFE = "tests/integration/life"
_AGENT = "tests/unit/streams/agent"
_CONSOLE = "tests/integration/console"

LIFE: tuple[Guard, ...] = (
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
        f"{_LIFE}/test_commands_withheld.py::test_command_that_is_not_allowed_any_more_stops_at_dispatch",
    ),
    Guard(
        "commands are checked when they are sent",
        "10",
        "anything_may_be_sent",
        f"{_LIFE}/test_commands_withheld.py::test_kind_that_the_certificate_does_not_allow_is_refused_and_written_down",
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
        f"{_LIFE}/test_commands_withheld.py::test_wrong_request_is_refused_like_everything_else_and_learns_nothing[other reports]",
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
        f"{_CONSOLE}/test_sessions.py::test_a_form_of_somebody_else_does_nothing",
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
)
