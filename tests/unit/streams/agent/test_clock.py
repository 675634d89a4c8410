"""What time it is on a machine that may not know, and which key it then takes."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.agents import Service, Time
from tests.support.crypto import NOW
from watchword.handlers.crypto.keysets import read_key_set
from watchword.schemas.keyset import KeySet
from watchword.streams.agent.rounds import choose_key

DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def key_set(*lives: tuple[str, timedelta, timedelta]) -> KeySet:
    service = Service()
    service.held = [service.held_key(kid, NOW + start, NOW + end) for kid, start, end in lives]
    return read_key_set(service.key_set(), service.jws.public)


OVERLAP = key_set(("old", -DAY, 30 * DAY), ("new", 20 * DAY, 60 * DAY))


def test_good_clock_is_believed() -> None:
    """The usual case."""
    time = Time(NOW + DAY)
    time.clock.learn(NOW)
    time.clock.hint(NOW + 9 * DAY)

    assert not time.clock.is_behind
    assert time.clock.now() == NOW + DAY


def test_clock_that_is_proven_behind_is_not_believed() -> None:
    """Signed documents exist, so it cannot be 1970."""
    time = Time(EPOCH)
    time.clock.learn(NOW)
    time.pass_by(60)

    assert time.clock.is_behind
    assert time.clock.is_guess
    assert time.clock.now() == NOW + timedelta(seconds=60)


def test_lower_bound_never_goes_back() -> None:
    """An old answer, played again, must not turn the time back."""
    time = Time(EPOCH)
    time.clock.learn(NOW)
    time.clock.learn(NOW - DAY)

    assert time.clock.now() == NOW


def test_hint_refines_a_wrong_clock_and_goes_on() -> None:
    """A gateway's Date is as good as it gets in 1970."""
    time = Time(EPOCH)
    time.clock.learn(NOW)
    time.clock.hint(NOW + 5 * DAY)
    time.pass_by(60)

    assert time.clock.now() == NOW + 5 * DAY + timedelta(seconds=60)
    assert not time.clock.is_guess


def test_hint_cannot_undercut_what_is_signed() -> None:
    """Nobody unsigned turns the time back."""
    time = Time(EPOCH)
    time.clock.learn(NOW)
    time.clock.hint(EPOCH)

    assert time.clock.now() == NOW


def test_clock_that_is_set_right_is_believed_again() -> None:
    """NTP comes up some time after boot."""
    time = Time(EPOCH)
    time.clock.learn(NOW)
    time.wall_s = (NOW + DAY).timestamp()

    assert not time.clock.is_behind
    assert time.clock.now() == NOW + DAY


@pytest.mark.parametrize(
    ("wall", "kid"),
    [
        (NOW, "old"),
        (NOW + 19 * DAY, "old"),
        (NOW + 21 * DAY, "new"),
        (NOW + 31 * DAY, "new"),
        (NOW + 9999 * DAY, "new"),
    ],
    ids=["issued", "before", "overlap", "after", "far ahead"],
)
def test_newest_key_that_may_be_used_now_is_taken(wall: datetime, kid: str) -> None:
    """An old key lives on for those who lag; whoever knows the time takes the new one."""
    assert choose_key(OVERLAP, Time(wall).clock).kid == kid


def test_machine_without_time_takes_the_key_that_ends_last() -> None:
    """The set may be weeks old: by its issue alone it would take a key that has ended since."""
    time = Time(EPOCH)
    time.clock.learn(NOW)

    assert choose_key(OVERLAP, time.clock).kid == "new"


def test_machine_with_a_hint_takes_the_key_of_that_time() -> None:
    """With a time to go by there is no need to be early."""
    time = Time(EPOCH)
    time.clock.learn(NOW)
    time.clock.hint(NOW + DAY)

    assert choose_key(OVERLAP, time.clock).kid == "old"


def test_set_without_a_usable_key_still_gives_one() -> None:
    """The service decides what it opens; a machine that gives up by itself helps nobody."""
    ended = key_set(("a", -3 * DAY, DAY), ("b", -2 * DAY, 2 * DAY))

    assert choose_key(ended, Time(NOW + 100 * DAY).clock).kid == "b"
