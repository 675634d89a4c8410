"""Policies of pools: what can be read, what it asks for, and what an operator is told of one that cannot."""

from typing import Any

import pytest

from watchword.handlers.attestors.tpm.attest import Clock
from watchword.handlers.attestors.tpm.policy import NotMet, UnreadablePolicy, judge, read_policy
from watchword.handlers.attestors.tpm.quote import PcrValues, Quote

SHA256 = 0x000B
ONES, TWOS = b"\x11" * 32, b"\x22" * 32
BASE: dict[str, Any] = {"pcrs": [0, 7], "banks": ["sha256"], "log": "ignored"}
LISTED: dict[str, Any] = {**BASE, "values": {"sha256": {"0": [ONES.hex()], "7": [ONES.hex()]}}}


def _quote(**values: bytes) -> Quote:
    found = {int(name[1:]): value for name, value in values.items()}
    return Quote((PcrValues(SHA256, found),), Clock(0, 0, 0, safe=True), 1)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"pcrs": [0, 7]}, "log"),
        (BASE, "one has to be there"),
        ({**LISTED, "pcrs": [0]}, "not quoted"),
        ({**LISTED, "pcrs": []}, "pcrs"),
        ({**LISTED, "banks": ["sha1"]}, "no such bank"),
        ({**LISTED, "banks": ["sha256", "sha384"]}, "every accepted bank"),
        ({**LISTED, "surprise": 1}, "surprise"),
        ({**LISTED, "unsafe_first_seen": 1}, "true or false"),
        ({**BASE, "banks": ["sha256", "sha384"], "unsafe_first_seen": True}, "one bank"),
        ({**BASE, "values": {"sha256": {"0": ["11"]}}}, "32 bytes"),
        ({**LISTED, "require": [{"pcr": 7, "digest": ONES.hex()}]}, "log required"),
    ],
)
def test_operator_is_told_what_is_wrong(said: dict[str, Any], words: str) -> None:
    """A policy that no worker can read closes its pool: whoever writes it has to hear of it at once."""
    with pytest.raises(UnreadablePolicy, match=words):
        read_policy(said)


def test_values_of_every_pcr_count() -> None:
    """One other value of a named PCR is another boot."""
    policy = read_policy(LISTED)
    assert judge(policy, _quote(p0=ONES, p7=ONES), b"").unlisted == {}
    with pytest.raises(NotMet, match="pcr-mismatch"):
        judge(policy, _quote(p0=ONES, p7=TWOS), b"")
    with pytest.raises(NotMet, match="quote"):
        judge(policy, _quote(p0=ONES), b"")


def test_first_seen_asks_only_for_what_is_not_listed() -> None:
    """A listed value is good for every node; any other is one node's own."""
    policy = read_policy({**LISTED, "unsafe_first_seen": True})
    assert judge(policy, _quote(p0=ONES, p7=TWOS), b"").unlisted == {7: TWOS}
    policy = read_policy({**BASE, "unsafe_first_seen": True})
    assert judge(policy, _quote(p0=ONES, p7=TWOS), b"").unlisted == {0: ONES, 7: TWOS}
