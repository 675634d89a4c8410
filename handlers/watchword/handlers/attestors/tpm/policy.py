"""What a pool asks of its TPMs' PCRs and event logs, and whether a quote meets it.

The JSON object that `context.anchors.tpm_policy` gives has these fields, and no others:

* `pcrs`: the PCRs that have to be quoted, at least one;
* `banks`: accepted banks, the best first: `sha256`, `sha384`, `sha512`, and `unsafe_sha1`;
* `log`: `required`, `optional` (judged where there is one) or `ignored`;
* `values`: bank → PCR → hex values of which the quoted one has to be one; for every accepted bank, or none;
* `require` and `forbid`: events, each `{"pcr": 7, "digest": "hex"}`; they need `log` `required` and one bank alone.
  A required event may also have a `kind`. A kind alone is no rule: the log says it, and no quote vouches for it;
* `unsafe_any_values`: true if there are neither values nor required events, so that any boot will do.

Whatever is missing, unknown or empty makes the whole policy unreadable, and an unreadable policy admits nobody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

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
_FIELDS = frozenset(("pcrs", "banks", "log", "values", "require", "forbid", "unsafe_any_values"))
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

    @property
    def bank_names(self) -> tuple[str, ...]:
        """The accepted banks, as a prover knows them."""
        return tuple(BANKS[bank] for bank in self.banks)


def read_policy(said: Mapping[str, Any]) -> PcrPolicy:
    """Return a policy.

    Raises:
        UnreadablePolicy: see the module's text.
    """
    try:
        return _read(said)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise UnreadablePolicy(type(error).__name__) from None


def judge(policy: PcrPolicy, quote: Quote, log: bytes) -> int:
    """Return the bank in which a quote, which holds, meets the policy.

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
    for pcr, allowed in policy.values.get(bank, {}).items():
        if quoted[pcr] not in allowed:
            raise NotMet("pcr-mismatch")
    if policy.log == "ignored" or (not log and policy.log == "optional"):
        return bank
    _judge_log(policy, quoted, bank, log)
    return bank


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
    if set(said) - _FIELDS or said["log"] not in _LOGS:
        raise UnreadablePolicy
    pcrs = tuple(_pcr(value) for value in said["pcrs"])
    banks = tuple(int(_NAMES[name]) for name in said["banks"])
    values = {
        int(_NAMES[name]): _values(found, int(_NAMES[name]))
        for name, found in said.get("values", {}).items()
    }
    require = _rules(said.get("require", ()), frozenset(("pcr", "digest", "kind")), banks)
    forbid = _rules(said.get("forbid", ()), frozenset(("pcr", "digest")), banks)
    if not pcrs or not banks or len(set(pcrs)) != len(pcrs) or len(set(banks)) != len(banks):
        raise UnreadablePolicy
    # A bank without values would be the one that a machine with another boot chooses.
    if values and (set(values) != set(banks) or not all(values.values())):
        raise UnreadablePolicy
    if any(not set(of_bank) <= set(pcrs) for of_bank in values.values()):
        raise UnreadablePolicy
    # A digest is one bank's: with two, a machine would choose the bank in which it is not forbidden.
    if (require or forbid) and (said["log"] != "required" or len(banks) != 1):
        raise UnreadablePolicy
    if any(rule.pcr not in pcrs for rule in (*require, *forbid)):
        raise UnreadablePolicy
    if not values and not require and said.get("unsafe_any_values") is not True:
        raise UnreadablePolicy
    return PcrPolicy(tuple(sorted(pcrs)), banks, said["log"], values, require, forbid)


def _pcr(value: Any) -> int:  # noqa: ANN401 - an operator's JSON
    if type(value) is not int or not 0 <= value <= MAX_PCR:
        raise UnreadablePolicy
    return value


def _values(said: Mapping[str, Any], bank: int) -> dict[int, frozenset[bytes]]:
    found = {
        _pcr(int(pcr)): frozenset(_digest(value, bank) for value in values)
        for pcr, values in said.items()
    }
    if not all(found.values()):
        raise UnreadablePolicy
    return found


def _digest(value: Any, bank: int) -> bytes:  # noqa: ANN401 - an operator's JSON
    digest = bytes.fromhex(value)
    if len(digest) != digest_size(bank):
        raise UnreadablePolicy
    return digest


def _rules(
    said: Any,  # noqa: ANN401 - an operator's JSON
    fields: frozenset[str],
    banks: tuple[int, ...],
) -> tuple[EventRule, ...]:
    if len(said) > _MAX_LIST:
        raise UnreadablePolicy
    found: list[EventRule] = []
    for rule in cast("list[dict[str, Any]]", said):
        kind = rule.get("kind")
        if set(rule) - fields or not (kind is None or (type(kind) is int and 0 <= kind >> 32 < 1)):
            raise UnreadablePolicy
        found.append(EventRule(_pcr(rule["pcr"]), _digest(rule["digest"], banks[0]), kind))
    return tuple(found)
