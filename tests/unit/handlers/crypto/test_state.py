"""What a machine keeps for us between two rounds."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.crypto import NOW
from watchword.handlers.crypto.state import StateSealer
from watchword.handlers.errors import SealBroken

ENDS = NOW + timedelta(minutes=5)
OLD, NEW = b"\x01" * 32, b"\x02" * 32
STATES = StateSealer({"c-1": OLD, "c-2": NEW}, active="c-2")
BOUND: dict[str, Any] = {
    "attestor": "tpm",
    "attestor_version": "1",
    "role": "node",
    "csr_sha256": b"\x07" * 32,
}


def sealed(data: bytes = b"nonce", *, by: StateSealer = STATES, ends: datetime = ENDS) -> bytes:
    return by.seal(data, **BOUND, expires_at=ends, now=NOW)


@given(st.binary(max_size=1000), st.text(max_size=20), st.text(max_size=20))
def test_a_state_comes_back_as_it_was(data: bytes, attestor: str, version: str) -> None:
    bound = BOUND | {"attestor": attestor, "attestor_version": version}
    state = STATES.seal(data, **bound, expires_at=ENDS, now=NOW)

    assert STATES.open(state, **bound, now=NOW) == data


@pytest.mark.parametrize(
    "change",
    [
        {"attestor": "tpm2"},
        {"attestor": "tp", "attestor_version": "m1"},
        {"attestor_version": "2"},
        {"role": "site"},
        {"csr_sha256": b"\x08" * 32},
    ],
    ids="-".join,
)
def test_a_state_is_good_for_what_it_was_made_for_alone(change: dict[str, Any]) -> None:
    """What was handed out in round one is refused for another key, attestor, version or role."""
    with pytest.raises(SealBroken):
        STATES.open(sealed(), **BOUND | change, now=NOW)


@pytest.mark.parametrize(
    ("at", "opens"),
    [
        (ENDS - timedelta(milliseconds=1), True),
        (ENDS, False),
        (ENDS + timedelta(days=1), False),
    ],
)
def test_a_state_expires_to_the_millisecond(at: datetime, opens: bool) -> None:  # noqa: FBT001
    """Otherwise a recorded challenge is good for ever."""
    state = sealed()

    if opens:
        assert STATES.open(state, **BOUND, now=at) == b"nonce"
    else:
        with pytest.raises(SealBroken, match="expired"):
            STATES.open(state, **BOUND, now=at)


@given(st.integers(min_value=0), st.integers(1, 255))
def test_no_byte_can_be_changed(place: int, flip: int) -> None:
    """The expiry stands in clear, and is bound all the same."""
    state = bytearray(sealed())
    state[place % len(state)] ^= flip

    with pytest.raises(SealBroken):
        STATES.open(bytes(state), **BOUND, now=NOW)


@given(st.binary(max_size=200))
def test_junk_is_broken_and_no_other_error(junk: bytes) -> None:
    for state in (junk, b"\x01" + junk, sealed()[:50] + junk, sealed()[: len(junk)]):
        with pytest.raises(SealBroken):
            STATES.open(state, **BOUND, now=NOW)


def test_a_retired_key_still_opens_and_an_unknown_one_does_not() -> None:
    """A rotation must not break the challenges that are out."""
    before = StateSealer({"c-1": OLD}, active="c-1")

    assert STATES.open(sealed(by=before), **BOUND, now=NOW) == b"nonce"
    with pytest.raises(SealBroken):
        before.open(sealed(), **BOUND, now=NOW)


def test_one_name_with_another_key_does_not_open() -> None:
    other = StateSealer({"c-2": OLD}, active="c-2")

    with pytest.raises(SealBroken):
        other.open(sealed(), **BOUND, now=NOW)


def test_no_two_states_are_alike_and_none_shows_its_data() -> None:
    """A constant nonce made a quote replayable at Keylime (CVE-2026-6420)."""
    secret = b"do not show this anywhere"

    states = {sealed(secret) for _ in range(1000)}

    assert len({state[-len(secret) - 16 :] for state in states}) == 1000
    assert not any(secret in state for state in states)


def test_a_state_that_could_never_be_opened_is_a_bug() -> None:
    with pytest.raises(ValueError, match="future"):
        sealed(ends=NOW)


@pytest.mark.parametrize(
    ("keys", "active"),
    [({}, "c-1"), ({"c-1": OLD}, "c-2"), ({"c-1": OLD[:31]}, "c-1"), ({"c 1": OLD}, "c 1")],
)
def test_half_a_configuration_does_not_start(keys: dict[str, bytes], active: str) -> None:
    with pytest.raises(ValueError, match="challenge key"):
        StateSealer(keys, active)
