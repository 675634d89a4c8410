"""Whatever bytes a machine shows of its TPM: an answer, a bounded amount of work, and no admission."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import each_part
from tests.fuzz.tpm import TPM_TARGETS, tpm
from tests.support.tpm import SPEC_ID, measured
from watchword.handlers.attestor import Admission, Challenge
from watchword.handlers.attestors.tpm.eventlog import MAX_EVENTS, MAX_LOG_BYTES, read_event_log
from watchword.handlers.attestors.tpm.evidence import MAX_PAYLOAD_BYTES
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.errors import Refused
from watchword.schemas.canonical import length_prefixed, read_length_prefixed


@pytest.mark.parametrize("name", TPM_TARGETS)
def test_unmutated_bytes_are_taken(name: str) -> None:
    """Else nothing would be tested below."""
    target = TPM_TARGETS[name]()
    assert not isinstance(target.hold(target.good), Refused | Malformed)


@pytest.mark.parametrize("name", TPM_TARGETS)
@settings(max_examples=150)
@given(data=st.data())
def test_cut_spliced_and_flipped_bytes_do_no_harm(name: str, data: st.DataObject) -> None:
    """Random damage at any place."""
    target = TPM_TARGETS[name]()
    good = target.good
    at = data.draw(st.integers(0, len(good)))
    upto = data.draw(st.integers(at, min(len(good), at + 64)))
    target.hold(good[:at] + data.draw(st.binary(max_size=64)) + good[upto:])


@pytest.mark.case("B54")
@pytest.mark.case("B55")
def test_every_part_of_the_evidence_counts_or_changes_nothing() -> None:
    """Dropped, doubled, retyped, oversized: a refusal, a fresh challenge, or the very same admission."""
    target = tpm()
    parts = read_length_prefixed(target.good, 6)
    answer = read_length_prefixed(parts[5], 8)
    payloads = [length_prefixed(*mutated) for mutated in each_part(parts)]
    payloads += [length_prefixed(*parts[:5], length_prefixed(*m)) for m in each_part(answer)]
    for payload in payloads:
        found = target.hold(payload)
        assert isinstance(found, Refused | Challenge) or found == target.admission


@pytest.mark.case("B55")
def test_evidence_cut_at_every_byte_is_refused() -> None:
    """No length, however it is cut, leads beyond the data."""
    target = tpm()
    for size in range(len(target.good)):
        assert isinstance(target.hold(target.good[:size]), Refused)


def test_no_changed_byte_of_the_evidence_gives_another_admission() -> None:
    """What is not looked at may be changed; what is looked at may not."""
    target = tpm()
    for at in range(0, len(target.good), 3):
        good = target.good
        found = target.hold(good[:at] + bytes((good[at] ^ 0x01,)) + good[at + 1 :])
        assert isinstance(found, Refused | Challenge) or found == target.admission


def _too_much() -> Iterator[bytes]:
    yield SPEC_ID + measured(0, 1, bytes(32), bytes(2 * 1024 * 1024))
    yield SPEC_ID + measured(0, 1, bytes(32), b"") * 10_000
    yield SPEC_ID + measured(0, 1, bytes(32), b"") * (MAX_EVENTS + 1)
    yield b"\xff" * (2 * 1024 * 1024)


@pytest.mark.parametrize("log", list(_too_much()), ids=["2 MB", "10,000", "one more", "noise"])
def test_log_beyond_its_bounds_is_refused(log: bytes) -> None:
    """Two megabytes or ten thousand events cost a length's comparison, or as many events as a log may have."""
    with pytest.raises(Malformed):
        read_event_log(log)


def test_oversized_evidence_is_refused_before_any_of_it_is_read() -> None:
    """A payload has a bound, and so has each of its parts."""
    target = tpm()
    parts = read_length_prefixed(target.good, 6)
    answer = read_length_prefixed(parts[5], 8)
    huge = length_prefixed(*answer[:4], bytes(2 * 1024 * 1024), *answer[5:])
    for payload in (
        length_prefixed(*parts[:5], huge),
        bytes(MAX_PAYLOAD_BYTES + 1),
        length_prefixed(
            *parts[:5], length_prefixed(*answer[:4], bytes(MAX_LOG_BYTES + 1), *answer[5:])
        ),
    ):
        assert isinstance(target.hold(payload), Refused)


def test_good_evidence_is_still_good_afterwards() -> None:
    """Nothing of what came before is remembered."""
    target = tpm()
    assert isinstance(target.hold(target.good), Admission)
