"""Event logs, replayed to the values that stand beside them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import new

from tests.vectors.judging import (
    Entry,
    Mismatch,
    Result,
    accepts,
    either,
    not_run,
    refuses,
    same,
)
from watchword.handlers.attestors.tpm.algorithms import BANKS, digest_size
from watchword.handlers.attestors.tpm.eventlog import EV_NO_ACTION, EventLog, read_event_log

_VALUES = ".pcrs.json"
_TOOL = (
    "tpm2_eventlog 5.4, which made the expectation, extends EV_NO_ACTION into PCR 0 and overlooks"
    " StartupLocality; by the TCG's PC Client Firmware Profile the value is another"
)


def logs(entries: Sequence[Entry]) -> Iterator[Result]:
    """Replay each log; its values are judged one by one where the file of values stands."""
    for entry in entries:
        if entry.name.endswith(_VALUES):
            yield from _values(entry)
        elif entry.expect == "replay":
            expected = json.loads((entry.root / (entry.path + _VALUES)).read_bytes())
            yield replays(entry, expected)
        elif entry.expect == "refuse":
            yield refuses(entry, read_event_log)
        else:
            yield either(entry, read_event_log)


def replays(entry: Entry, expected: Mapping[str, Mapping[str, str]]) -> Result:
    """Return whether a log leads to these values (by bank and PCR), and no longer when a digest is changed."""
    log = read_event_log(entry.data())
    disputed = _disputed(log, expected)

    def take(data: bytes) -> None:
        found = read_event_log(data)
        for name, values in expected.items():
            bank = next((b for b in found.banks if BANKS[b] == name), None)
            if bank is None:
                if name in BANKS.values():
                    raise Mismatch
                continue
            replayed = found.replay(bank)
            same(len(found.events), len(log.events))
            for pcr, value in values.items():
                if (name, pcr) not in disputed:
                    same(replayed.get(int(pcr), bytes(digest_size(bank))).hex(), value)

    return accepts(entry, take, flips=_digests(entry.data(), log, expected, disputed))


def _values(entry: Entry) -> Iterator[Result]:
    log = read_event_log((entry.root / entry.path.removesuffix(_VALUES)).read_bytes())
    expected = json.loads(entry.data())
    disputed = _disputed(log, expected)
    if not expected:
        yield accepts(entry, lambda _: same(log.events, ()), flips=())
    for name, values in expected.items():
        if name not in BANKS.values():
            yield not_run(entry, "the bank's hash is none that we take", case=name)
            continue
        [bank] = [number for number, said in BANKS.items() if said == name]
        replayed = log.replay(bank)
        for pcr, value in values.items():
            case = f"{name}:{pcr}"
            if (name, pcr) in disputed:
                yield not_run(entry, _TOOL, case=case)
                continue
            yield accepts(
                entry,
                lambda data, pcr=pcr, replayed=replayed: same(data, replayed.get(int(pcr), b"")),  # type: ignore[misc] # its arguments are bound here
                bytes.fromhex(value),
                case=case,
            )


def _disputed(log: EventLog, expected: Mapping[str, Mapping[str, str]]) -> set[tuple[str, str]]:
    """Return the values (bank and PCR) that differ from ours, and are exactly what that tool comes to by its mistake."""
    found: set[tuple[str, str]] = set()
    for bank in log.banks:
        name, value = BANKS[bank], expected.get(BANKS[bank], {}).get("0")
        if value is None or value == log.replay(bank).get(0, b"").hex():
            continue
        by_mistake = bytes(digest_size(bank))
        for event in log.events:
            if event.pcr == 0:
                by_mistake = new(name, by_mistake + event.digests[bank]).digest()
        says_nothing = any(e.kind == EV_NO_ACTION and e.pcr == 0 for e in log.events)
        if says_nothing and value == by_mistake.hex():
            found.add((name, "0"))
    return found


def _digests(
    data: bytes,
    log: EventLog,
    expected: Mapping[str, Mapping[str, str]],
    disputed: set[tuple[str, str]],
) -> list[int]:
    """Return places of digests that count: what an event says beside them, no PCR vouches for."""
    places: list[int] = []
    at = 0
    for event in log.events:
        head = event.pcr.to_bytes(4, "little") + event.kind.to_bytes(4, "little")
        at = data.index(head, at)
        for bank, digest in event.digests.items():
            at = data.index(digest, at)
            key = (BANKS.get(bank, ""), str(event.pcr))
            counts = event.kind != EV_NO_ACTION and key not in disputed
            if counts and key[1] in expected.get(key[0], {}):
                places.append(at)
            at += len(digest)
        at += 4 + len(event.data)
    return places[:: max(1, len(places) // 12)]
