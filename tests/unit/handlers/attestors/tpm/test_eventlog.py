"""Event logs that are hostile, and those that are odd and right."""

from hashlib import sha256

import pytest

from tests.support.tpm import SPEC_ID, measured
from watchword.handlers.attestors.tpm.eventlog import MAX_EVENTS, read_event_log
from watchword.handlers.attestors.tpm.reader import Malformed

SHA256 = 0x000B
NO_ACTION = 3
DIGEST = sha256(b"something").digest()


@pytest.mark.case("B49")
def test_pcr_0_begins_at_the_locality_and_no_action_extends_nothing() -> None:
    """Machines with a measured launch start their TPM from locality 3."""
    log = SPEC_ID + measured(0, NO_ACTION, bytes(32), b"StartupLocality\0\x03")
    log += measured(0, 8, DIGEST, b"") + measured(1, 8, DIGEST, b"")

    assert read_event_log(log).replay(SHA256) == {
        0: sha256(bytes(31) + b"\x03" + DIGEST).digest(),
        1: sha256(bytes(32) + DIGEST).digest(),
    }


@pytest.mark.case("B48")
def test_unknown_kinds_of_events_are_replayed_and_kept() -> None:
    """A host's update brings kinds that nobody has heard of; its machines are as healthy as before."""
    log = read_event_log(
        SPEC_ID + measured(1, 0x0A, DIGEST, b"") + measured(7, 0x80FFFFFF, DIGEST, b"?")
    )
    assert [event.kind for event in log.events] == [0x0A, 0x80FFFFFF]
    assert set(log.replay(SHA256)) == {1, 7}


@pytest.mark.parametrize(
    "log",
    [
        b"",
        b"\0" * 31,
        SPEC_ID + measured(24, 1, DIGEST, b""),
        SPEC_ID + measured(0, 1, DIGEST, b"")[:-1],
        SPEC_ID + b"\0\0\0\0\1\0\0\0\xff\xff\xff\xff",
        SPEC_ID + b"\0\0\0\0\1\0\0\0\1\0\0\0\x0c\0" + DIGEST,
        SPEC_ID + measured(0, 1, DIGEST, b"")[:-4] + b"\xff\xff\xff\xff",
        SPEC_ID[:-1] + b"\xff",
        b"\0" * (2 * 1024 * 1024),
        SPEC_ID + measured(0, 1, DIGEST, b"") * 10_000,
        SPEC_ID + measured(0, 1, DIGEST, b"") * (MAX_EVENTS + 1),
    ],
)
def test_hostile_log_is_refused(log: bytes) -> None:
    """Lengths beyond the log, PCRs that there are not, two megabytes, ten thousand events."""
    with pytest.raises(Malformed):
        read_event_log(log)
