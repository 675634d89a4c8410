"""What a pool asks of its TPMs' PCRs and event logs, and whether a quote meets it.

The JSON object that `context.anchors.tpm_policy` gives has these fields, and no others:

* `pcrs`: the PCRs that have to be quoted, at least one;
* `banks`: accepted banks, the best first: `sha256`, `sha384`, `sha512`, and `unsafe_sha1`;
* `log`: `required`, `optional` (judged where there is one) or `ignored`;
* `values`: bank → PCR → hex values of which the quoted one has to be one; for every accepted bank, or none;
* `require` and `forbid`: events, each `{"pcr": 7, "digest": "hex"}`; they need `log` `required` and one bank alone.
  A required event may also have a `kind`. A kind alone is no rule: the log says it, and no quote vouches for it;
* `unsafe_first_seen`: true if a value that is not listed will do at a node's first join, and is the only
  one that will do afterwards; it needs one bank alone;
* `unsafe_any_values`: true if there is none of these, nor required events, so that any boot will do.

Whatever is missing, unknown or empty makes the whole policy unreadable, and an unreadable policy admits nobody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import orjson

from watchword.handlers.attestors.tpm.algorithms import BANKS, Alg, digest_size
from watchword.handlers.attestors.tpm.eventlog import (
    EV_NO_ACTION,
    MAX_PCR,
    Event,
    EventLog,
    read_event_log,
)
from watchword.handlers.attestors.tpm.quote import Quote
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.errors import WatchwordError

_NAMES = {
    "sha256": Alg.SHA256,
    "sha384": Alg.SHA384,
    "sha512": Alg.SHA512,
    "unsafe_sha1": Alg.SHA1,
}
_LOGS = ("required", "optional", "ignored")
_SWITCHES = frozenset(("unsafe_first_seen", "unsafe_any_values"))
_FIELDS = frozenset(("pcrs", "banks", "log", "values", "require", "forbid")) | _SWITCHES
_MAX_LIST = 256
_DYNAMIC = range(17, 23)
"""PCRs of a dynamic launch begin with ones (PC Client Platform TPM Profile, 4.6.2)."""


class UnreadablePolicy(WatchwordError):
    """A pool's policy says something that is not known, or too little."""


class NotMet(WatchwordError):
    """A TPM does not meet the policy; `reason` is one of `tpm`'s."""

    def __init__(self, reason: str) -> None:
        """Name the reason."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class EventRule:
    """A digest in a PCR, and perhaps the kind that the log gives it."""

    pcr: int
    digest: bytes
    kind: int | None

    def takes(self, event: Event, bank: int) -> bool:
        """Tell whether this event is meant. What was never extended is nobody's word but the machine's."""
        return (
            event.kind != EV_NO_ACTION
            and (event.pcr, event.digests.get(bank)) == (self.pcr, self.digest)
            and self.kind in (None, event.kind)
        )


@dataclass(frozen=True, slots=True)
class PcrPolicy:
    """A policy that was read; see the module's text."""

    pcrs: tuple[int, ...]
    banks: tuple[int, ...]
    log: str
    values: Mapping[int, Mapping[int, frozenset[bytes]]]
    require: tuple[EventRule, ...]
    forbid: tuple[EventRule, ...]
    first_seen: bool = False

    @property
    def bank_names(self) -> tuple[str, ...]:
        """The accepted banks, as a prover knows them."""
        return tuple(BANKS[bank] for bank in self.banks)


@dataclass(frozen=True, slots=True)
class Met:
    """The bank in which a policy is met, and quoted values (by PCR) that have to be those first seen of the node."""

    bank: int
    unlisted: Mapping[int, bytes]


def read_policy(said: Mapping[str, Any]) -> PcrPolicy:
    """Return a policy.

    Raises:
        UnreadablePolicy: see the module's text; its message says what is wrong, for an operator.
    """
    try:
        return _read(said)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        message = f"a field is missing or of another form ({type(error).__name__}: {error})"
        raise UnreadablePolicy(message) from None


@lru_cache(maxsize=256)
def cached_policy(said: bytes) -> PcrPolicy:
    """Return the policy of this JSON; a fleet of one pool has one, and joins by the thousand.

    Raises:
        UnreadablePolicy: see the module's text.
    """
    return read_policy(orjson.loads(said))


def judge(policy: PcrPolicy, quote: Quote, log: bytes) -> Met:
    """Return how a quote, which holds, meets the policy.

    Only PCRs that the policy names are judged: operating systems extend others after the log was written.

    Raises:
        NotMet: with the reason.
    """
    bank = next((b for b in policy.banks if quote.of(b)), None)
    if bank is None:
        raise NotMet("bank-weak")
    quoted = quote.of(bank)
    if not set(policy.pcrs) <= set(quoted):
        raise NotMet("quote")
    unlisted: dict[int, bytes] = {}
    listed = policy.values.get(bank, {})
    for pcr in policy.pcrs if policy.first_seen else listed:
        if quoted[pcr] not in listed.get(pcr, ()):
            if not policy.first_seen:
                raise NotMet("pcr-mismatch")
            unlisted[pcr] = quoted[pcr]
    if policy.log == "required" or (log and policy.log == "optional"):
        _judge_log(policy, quoted, bank, log)
    return Met(bank, unlisted)


def _judge_log(policy: PcrPolicy, quoted: Mapping[int, bytes], bank: int, data: bytes) -> None:
    if not data.strip(b"\0"):  # some virtual TPMs give a log of zeros
        raise NotMet("log-absent")
    try:
        log: EventLog = read_event_log(data)
    except Malformed:
        raise NotMet("log-malformed") from None
    if bank not in log.banks:
        raise NotMet("log-bank")
    replayed = log.replay(bank)
    for pcr in policy.pcrs:
        fill = b"\xff" if pcr in _DYNAMIC else b"\0"
        if replayed.get(pcr, fill * digest_size(bank)) != quoted[pcr]:
            raise NotMet("log-mismatch")
    # Only what the quote vouches for counts: an event in another PCR is anybody's word.
    for rule in policy.require:
        if not any(rule.takes(event, bank) for event in log.events):
            raise NotMet("event-missing")
    for rule in policy.forbid:
        if any(rule.takes(event, bank) for event in log.events):
            raise NotMet("event-forbidden")


def _read(said: Mapping[str, Any]) -> PcrPolicy:
    if unknown := sorted(set(said) - _FIELDS):
        message = f"no such field: {', '.join(unknown)}"
        raise UnreadablePolicy(message)
    if said["log"] not in _LOGS:
        message = f"log: one of {', '.join(_LOGS)}"
        raise UnreadablePolicy(message)
    pcrs = tuple(_pcr(value) for value in said["pcrs"])
    banks = tuple(_bank(name) for name in said["banks"])
    values = {_bank(name): _values(found, _bank(name)) for name, found in _items(said)}
    require = _rules(said.get("require", ()), frozenset(("pcr", "digest", "kind")), banks)
    forbid = _rules(said.get("forbid", ()), frozenset(("pcr", "digest")), banks)
    first_seen, any_values = (_switch(said, name) for name in sorted(_SWITCHES, reverse=True))
    for problem, is_there in (
        ("pcrs: at least one, each once", not pcrs or len(set(pcrs)) != len(pcrs)),
        ("banks: at least one, each once", not banks or len(set(banks)) != len(banks)),
        # A bank without values would be the one that a machine with another boot chooses.
        (
            "values: for every accepted bank, or for none",
            bool(values) and (set(values) != set(banks) or not all(values.values())),
        ),
        ("values: of a PCR that is not quoted", not _inside(values.values(), pcrs)),
        # A digest is one bank's: with two, a machine would choose the bank in which it is not forbidden.
        (
            "require and forbid: need log required, and one bank alone",
            bool(require or forbid) and (said["log"] != "required" or len(banks) != 1),
        ),
        ("require and forbid: of a PCR that is not quoted", not _inside((require, forbid), pcrs)),
        # With two banks, a machine would choose the one of which nothing has been seen.
        ("unsafe_first_seen: needs one bank alone", first_seen and len(banks) != 1),
        (
            "values, require, unsafe_first_seen or unsafe_any_values: one has to be there",
            not (values or require or first_seen or any_values),
        ),
    ):
        if is_there:
            raise UnreadablePolicy(problem)
    return PcrPolicy(tuple(sorted(pcrs)), banks, said["log"], values, require, forbid, first_seen)


def _items(said: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: Mapping[str, Any] = said.get("values", {})
    return list(found.items())


def _switch(said: Mapping[str, Any], name: str) -> bool:
    found = said.get(name, False)
    if type(found) is not bool:
        message = f"{name}: true or false"
        raise UnreadablePolicy(message)
    return found


def _bank(name: str) -> int:
    if name not in _NAMES:
        message = f"no such bank: {name} (there is: {', '.join(_NAMES)})"
        raise UnreadablePolicy(message)
    return int(_NAMES[name])


def _inside(
    named: Iterable[Mapping[int, frozenset[bytes]] | tuple[EventRule, ...]], pcrs: tuple[int, ...]
) -> bool:
    return all(
        (rule.pcr if isinstance(rule, EventRule) else rule) in pcrs
        for rules in named
        for rule in rules
    )


def _pcr(value: Any) -> int:  # noqa: ANN401 - an operator's JSON
    if type(value) is not int or not 0 <= value <= MAX_PCR:
        message = f"a PCR is a number from 0 to {MAX_PCR}"
        raise UnreadablePolicy(message)
    return value


def _values(said: Mapping[str, Any], bank: int) -> dict[int, frozenset[bytes]]:
    found = {
        _pcr(int(pcr)): frozenset(_digest(value, bank) for value in values)
        for pcr, values in said.items()
    }
    if not all(found.values()):
        message = "values: a PCR without any"
        raise UnreadablePolicy(message)
    return found


def _digest(value: Any, bank: int) -> bytes:  # noqa: ANN401 - an operator's JSON
    digest = bytes.fromhex(value)
    if len(digest) != digest_size(bank):
        message = f"a digest of {BANKS[bank]} has {digest_size(bank)} bytes"
        raise UnreadablePolicy(message)
    return digest


def _rules(
    said: Any,  # noqa: ANN401 - an operator's JSON
    fields: frozenset[str],
    banks: tuple[int, ...],
) -> tuple[EventRule, ...]:
    if len(said) > _MAX_LIST:
        message = f"at most {_MAX_LIST} rules"
        raise UnreadablePolicy(message)
    found: list[EventRule] = []
    for rule in cast("list[dict[str, Any]]", said):
        kind = rule.get("kind")
        if set(rule) - fields or not (kind is None or (type(kind) is int and 0 <= kind >> 32 < 1)):
            message = f"a rule has {', '.join(sorted(fields))}"
            raise UnreadablePolicy(message)
        found.append(EventRule(_pcr(rule["pcr"]), _digest(rule["digest"], banks[0]), kind))
    return tuple(found)
