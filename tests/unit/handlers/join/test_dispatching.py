"""What becomes of a node's commands when it asks: each of them, and in their order."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.crypto import NOW
from tests.support.locked_commands import locked
from watchword.handlers.join.dispatching import as_command, dispatch, still_allowed
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.rows import LockedCommand
from watchword.schemas.commands import MAX_PAYLOAD_BYTES, MAX_SENT, MAX_SENT_BYTES, Report


def decided(*commands: LockedCommand, reports: Any = (), is_live: bool = True) -> Any:  # noqa: ANN401
    return dispatch(commands, reports, BUILT_IN, NOW, is_live=is_live)


def test_first_time_is_told_apart_from_the_next_ones() -> None:
    """One event for each command that was handed out, however often it is."""
    new, old = locked(), locked(state="dispatched", dispatched_at=NOW, version=2)
    done = decided(new, old)

    assert [sent.id for sent in done.sent] == [new.row.id, old.row.id]
    [row] = done.dispatched
    assert (row.state, row.version, row.dispatched_at) == ("dispatched", 2, NOW)
    assert row.certificate_serial == b"\x0f" * 16
    assert as_command(done.sent[0]).certificate_serial == "0f" * 16
    assert not done.more


@pytest.mark.parametrize(
    ("command", "is_live", "reason"),
    [
        (locked(kinds=("wipe",)), True, "not-allowed"),
        (locked(kind="wipe"), True, "not-registered"),
        (replace(locked(), serial=None), True, "no-certificate"),
        (locked(), False, "node-state"),
        (locked(state="dispatched", dispatched_at=NOW, kinds=()), True, "not-allowed"),
    ],
)
def test_what_may_not_be_told_any_more_is_refused_and_says_why(
    command: LockedCommand, reason: str, *, is_live: bool
) -> None:
    done = decided(command, is_live=is_live)
    [row] = done.refused
    assert (row.state, row.reason, row.ended_at, row.version) == ("refused", reason, NOW, 2)
    assert done.sent == done.dispatched == []


def test_expired_commands_are_not_handed_out_and_left_to_the_keeper() -> None:
    done = decided(locked(expires_at=NOW))
    assert done.sent == done.changed == []


def test_answer_has_room_for_so_many_and_for_so_much() -> None:
    """What is left comes with the next question, in the same order."""
    assert len(decided(*[locked() for _ in range(MAX_SENT + 1)]).sent) == MAX_SENT
    large = [locked(payload=b"x" * MAX_PAYLOAD_BYTES) for _ in range(2)]
    done = decided(*large, locked())

    assert [sent.id for sent in done.sent] == [large[0].row.id]
    assert done.more
    assert sum(len(sent.payload) for sent in done.sent) <= MAX_SENT_BYTES


@pytest.mark.parametrize("state", ["dispatched", "refused", "cancelled", "expired"])
def test_word_of_the_node_ends_what_it_was_told(state: str) -> None:
    """Also what was called off meanwhile: it happened."""
    ended = None if state == "dispatched" else NOW
    command = locked(state=state, dispatched_at=NOW, ended_at=ended, reason="not-allowed")
    done = decided(command, reports=[Report(id=str(command.row.id), result="done", exit_status=0)])

    [row] = done.finished
    assert (row.state, row.reason, row.exit_status) == ("done", None, 0)
    assert done.sent == []


@pytest.mark.parametrize("state", ["queued", "done", "failed", "refused"])
def test_word_of_the_node_on_what_it_was_not_told_or_has_said_counts_for_nothing(
    state: str,
) -> None:
    at = NOW if state in ("done", "failed") else None
    ended = None if state == "queued" else NOW
    command = locked(state=state, dispatched_at=at, ended_at=ended)
    done = decided(command, reports=[Report(id=str(command.row.id), result="failed")])

    assert done.finished == []
    assert len(done.sent) == (state == "queued")


def test_recorded_answer_is_given_again_only_as_far_as_it_still_may() -> None:
    sent = decided(locked(kinds=("disk.*",))).sent
    assert still_allowed(sent, BUILT_IN) == sent
    assert still_allowed(sent, BUILT_IN - {"disk.wipe"}) == []
    assert still_allowed([replace(sent[0], allowed_kinds=("logs.*",))], BUILT_IN) == []
