"""Guards of the processes: what they outlive, whose code and keys they take, what they trace."""

from tests.guards.guard import Guard

_CRYPTO = "tests/unit/handlers/crypto"

PROCESSES: tuple[Guard, ...] = (
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
        "polls do not end together",
        "1",
        "polls_end_together",
        "tests/unit/streams/gateway/test_routes.py::test_polls_that_came_together_do_not_end_together",
    ),
    Guard(
        "idle polls end a few in a turn",
        "1",
        "idle_polls_end_at_once",
        "tests/unit/streams/gateway/test_routes.py::test_polls_without_an_answer_end_a_few_in_a_turn",
    ),
    Guard(
        "waiting polls are not looked at for garbage",
        "1",
        "gateways_stop_to_look_for_garbage",
        "tests/integration/gateway/test_pauses.py",
    ),
    Guard(
        "a producer that is given up ends with its sender",
        "1",
        "senders_wait_for_metadata",
        "tests/integration/gateway/test_retired_producers.py",
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
    Guard(
        "schema of a release",
        "1",
        "every_schema_is_fit",
        "tests/integration/store/test_migrations.py::test_worker_does_not_start_where_its_successor_has_taken_away_what_it_uses",
    ),
    Guard("producer replacement", "5", "a_wedged_producer_is_kept", "tests.faults"),
    Guard("epoch fence", "1", "cursors_move_without_a_fence", "tests.faults"),
    Guard("savepoint", "3", "refusals_keep_what_was_written", "tests.faults"),
    Guard("ordered journal", "1", "numbers_are_drawn_ahead", "tests.faults"),
    Guard("inbox claim, over processes", "2", "every_copy_is_judged", "tests.faults"),
    Guard("spend under lock, over processes", "2", "tokens_are_not_locked", "tests.faults"),
)
