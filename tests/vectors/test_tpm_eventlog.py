"""Event logs of real machines, replayed to the values that `tpm2_eventlog` gives."""

import json
from hashlib import sha256

import pytest

from tests.support.vectors import VECTORS, vector
from watchword.handlers.attestors.tpm.algorithms import BANKS
from watchword.handlers.attestors.tpm.eventlog import EV_NO_ACTION, read_event_log
from watchword.handlers.attestors.tpm.reader import Malformed

pytestmark = pytest.mark.vectors

LOGS = sorted(p.name for p in (VECTORS / "tpm-eventlog").glob("*.pcrs.json"))
WRONG_IN_PCR_0 = {
    "confidential-gke-debug-251000_eventlog.bin",
    "gdc-host.bin",
    "glinux-workstation.bin",
}
"""Logs with a second EV_NO_ACTION or a StartupLocality: version 5.4 of the tool extends the one and overlooks the other."""


@pytest.mark.parametrize("expected", LOGS)
def test_log_replays_to_the_values_of_its_tpm(expected: str) -> None:
    """A replay that differs by one event refuses every machine of a model."""
    wanted = json.loads((vector("tpm-eventlog") / expected).read_text())
    log = read_event_log(
        (vector("tpm-eventlog") / expected.removesuffix(".pcrs.json")).read_bytes()
    )
    replayed = {
        BANKS[bank]: {str(pcr): value.hex() for pcr, value in log.replay(bank).items()}
        for bank in log.banks
    }
    for bank in set(BANKS.values()) & set(wanted):
        differ = {n for n in wanted[bank] if wanted[bank][n] != replayed[bank].pop(n)}
        assert not replayed[bank]
        assert differ == ({"0"} if expected.removesuffix(".pcrs.json") in WRONG_IN_PCR_0 else set())


@pytest.mark.case("B49")
@pytest.mark.parametrize("name", sorted(WRONG_IN_PCR_0))
def test_tool_is_wrong_by_just_those_events(name: str) -> None:
    """The specification is clear: what extends nothing extends nothing, and PCR 0 begins at the locality."""
    wanted = json.loads((vector("tpm-eventlog") / f"{name}.pcrs.json").read_text())
    log = read_event_log((vector("tpm-eventlog") / name).read_bytes())
    value = bytes(32)
    for event in log.events:
        if event.pcr == 0:
            value = sha256(value + event.digests[0x000B]).digest()

    assert value.hex() == wanted["sha256"]["0"]
    assert any(event.kind == EV_NO_ACTION for event in log.events)


def test_cut_log_is_refused() -> None:
    """A log that ends within an event was cut, by a full buffer or by somebody."""
    with pytest.raises(Malformed):
        read_event_log((vector("tpm-eventlog") / "short_no_action_eventlog").read_bytes())


def test_every_cut_within_an_event_is_refused_or_replays_to_less() -> None:
    """No crash; and what is cut at an event's end gives other values than the whole."""
    data = (vector("tpm-eventlog") / "tools-event-sd-boot-fedora37.bin").read_bytes()
    whole = read_event_log(data)
    for size in range(len(data)):
        try:
            part = read_event_log(data[:size])
        except Malformed:
            continue
        assert len(part.events) < len(whole.events)
        assert part.replay(0x000B) != whole.replay(0x000B)


def test_every_changed_byte_is_read_or_refused() -> None:
    """A parser that raises anything else stops a worker."""
    data = (vector("tpm-eventlog") / "tools-event-sd-boot-fedora37.bin").read_bytes()
    for at in range(len(data)):
        changed = data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]
        try:
            log = read_event_log(changed)
        except Malformed:
            continue
        for bank in log.banks:
            log.replay(bank)
