"""Why a machine was refused or not understood: a closed list, because it goes on the wire.

A reason is `<attestor>:<reason>` in kebab-case. Each has a stable code that is never reused; a
retired name stays reserved. The core's own are under `join`, `renew` and `command`; every attestor also has the
`STANDARD` ones; the rest an attestor declares itself.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from watchword.schemas.remedies import remedy_of

Severity = Literal["low", "medium", "high"]

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

CODE = re.compile(r"[A-Z][A-Z0-9]{1,7}[0-9]{4}")
"""A stable code. `WJ` is ours; strangers choose letters of their own."""

MAX_TEXT = 300
"""Characters of a sentence or a remedy."""

REASON = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")

OTHER = "other"
"""What a reason folds into that its attestor did not declare, so that nobody makes unbounded series."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: its name after the colon, a stable code, how bad it is, and a sentence."""

    name: str
    code: str
    severity: Severity
    sentence: str
    attack: bool = False
    """Whether it hints at an attack rather than at a mistake."""
    remedy: str = ""
    """What to do about it, for strangers' attestors; the texts of ours are in `remedies`."""

    @property
    def what_to_do(self) -> str:
        """What whoever has the alert in front of them does next."""
        return remedy_of(self.code, own=self.remedy, attack=self.attack)


@dataclass(frozen=True, slots=True)
class Retired:
    """A reason of an earlier release: neither its name nor its code is ever given to another."""

    attestor: str
    """The attestor's id; `join` for the core, `*` for a standard one."""
    name: str
    code: str


RETIRED: tuple[Retired, ...] = (Retired("join", "unsupported-kind", "WJ0105"),)
"""Names and codes that are reserved for ever: whoever takes a reason away adds it here."""


def is_well_formed(reason: object) -> bool:
    """Tell whether a stranger's declaration can go on the wire and into labels: bounded, printable, ASCII."""
    return (
        isinstance(reason, Reason)
        and _is_text(reason.name)
        and REASON.fullmatch(reason.name) is not None
        and _is_text(reason.code)
        and CODE.fullmatch(reason.code) is not None
        and reason.severity in SEVERITIES
        and _is_text(reason.sentence)
        and _is_text(reason.remedy)
        and reason.attack in (True, False)
    )


def _is_text(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= MAX_TEXT
        and (not value or (value.isascii() and value.isprintable()))
    )


JOIN_REFUSALS: tuple[Reason, ...] = (
    Reason(
        "unseal",
        "WJ0001",
        "high",
        "The seal does not open with the key that it names: the request was altered, or the evidence moved.",
        attack=True,
    ),
    Reason(
        "sealing-key",
        "WJ0012",
        "medium",
        "The evidence is sealed to a key that is not in use, or no more.",
    ),
    Reason(
        "role-not-listed", "WJ0002", "medium", "The attestor does not admit machines of this role."
    ),
    Reason(
        "csr-reused",
        "WJ0003",
        "high",
        "The CSR was admitted before, and that admission no longer stands.",
        attack=True,
    ),
    Reason(
        "key-in-use",
        "WJ0004",
        "high",
        "The public key is on another node's certificate.",
        attack=True,
    ),
    Reason(
        "node-key-statement",
        "WJ0005",
        "medium",
        "The key statement cannot be proved again at renewal.",
    ),
    Reason(
        "banned", "WJ0006", "high", "A subject that the evidence proves is banned.", attack=True
    ),
    Reason(
        "already-enrolled",
        "WJ0007",
        "medium",
        "The proven hardware is enrolled, and nothing allows a reclaim.",
    ),
    Reason(
        "no-downgrade",
        "WJ0008",
        "high",
        "The node has a stronger proof than the one shown.",
        attack=True,
    ),
    Reason(
        "not-allowed",
        "WJ0009",
        "medium",
        "The configuration does not let this attestor return that tenant, pool, site, role or kind.",
    ),
    Reason(
        "too-many-waiting",
        "WJ0011",
        "medium",
        "As many joins of the tenant or site wait for an operator as may.",
    ),
    Reason(
        "expect-mismatch", "WJ0010", "medium", "The claims are not the ones that the token expects."
    ),
)

JOIN_INVALID: tuple[Reason, ...] = (
    Reason(
        "claims-malformed", "WJ0107", "low", "The sealed plaintext is not a payload and claims."
    ),
    Reason("undecodable", "WJ0100", "low", "The bytes are not the canonical JSON of a request."),
    Reason("csr-malformed", "WJ0101", "low", "The CSR cannot be parsed, or is too large."),
    Reason("csr-signature", "WJ0102", "medium", "The CSR is not signed by its own key."),
    Reason("weak-key", "WJ0103", "low", "The key's kind or size is not accepted."),
    Reason("unknown-attestor", "WJ0104", "low", "No attestor of that id is installed."),
    Reason(
        "poison",
        "WJ0106",
        "medium",
        "The record cannot be parsed by the Kafka client and was passed over.",
    ),
)

STANDARD: tuple[Reason, ...] = (
    Reason(
        "not-its-node",
        "WJ0200",
        "high",
        "The evidence does not prove that the node is this machine's.",
        attack=True,
    ),
    Reason(
        "bound-elsewhere",
        "WJ0201",
        "high",
        "The proven subject is bound to another node.",
        attack=True,
    ),
    Reason(
        "replayed",
        "WJ0202",
        "high",
        "Something that may be used once was used before.",
        attack=True,
    ),
    Reason("rejected", "WJ0204", "medium", "An operator has rejected this join."),
    Reason("used-up", "WJ0303", "medium", "The token has no uses left."),
    Reason("expired", "WJ0304", "low", "The token has expired."),
    Reason("revoked", "WJ0305", "medium", "The token was revoked."),
    Reason(
        OTHER,
        "WJ0203",
        "medium",
        "A reason that the attestor did not declare; its text is in the worker's log.",
    ),
)

JOIN_TOKEN: tuple[Reason, ...] = (
    Reason("malformed", "WJ0300", "low", "The evidence is no join token."),
    Reason("unknown-token", "WJ0301", "medium", "There is no token of that id.", attack=True),
    Reason(
        "bad-secret", "WJ0302", "high", "The token's id exists, its secret is wrong.", attack=True
    ),
    Reason("wrong-role", "WJ0306", "medium", "The token is for machines of another role."),
)

RENEWAL: tuple[Reason, ...] = (
    Reason("malformed", "WJ0900", "low", "The evidence is no proof of a certificate's key."),
    Reason(
        "unknown-certificate",
        "WJ0901",
        "medium",
        "No certificate of that TBS was ever issued here.",
    ),
    Reason(
        "signature",
        "WJ0902",
        "high",
        "The certificate's key did not sign this renewal: other key, CSR or request.",
        attack=True,
    ),
    Reason("wrong-role", "WJ0903", "medium", "The node has another role than the request names."),
    Reason("node-state", "WJ0904", "medium", "The node is neither adopting nor active."),
    Reason("revoked", "WJ0905", "high", "The certificate is revoked.", attack=True),
    Reason(
        "expired", "WJ0906", "low", "The certificate has expired; the node has to attest again."
    ),
    Reason("superseded", "WJ0907", "medium", "The node has a newer certificate."),
    Reason(
        "key-conflict",
        "WJ0908",
        "high",
        "Two different keys were renewed from one certificate: its key is in two hands.",
        attack=True,
    ),
    Reason(
        "key-statement-unknown",
        "WJ0909",
        "medium",
        "The certificate's key statement cannot be proved for the new key.",
    ),
)

COMMANDS: tuple[Reason, ...] = (
    Reason("malformed", "WJ1000", "low", "The evidence is no proof of a certificate's key."),
    Reason(
        "unknown-certificate",
        "WJ1001",
        "medium",
        "No certificate of that TBS was ever issued here.",
    ),
    Reason(
        "signature",
        "WJ1002",
        "high",
        "The certificate's key did not sign this request for commands: other key, CSR, reports or request.",
        attack=True,
    ),
    Reason("wrong-role", "WJ1003", "medium", "The node has another role than the request names."),
    Reason("node-state", "WJ1004", "medium", "The node is neither adopting nor active."),
    Reason("revoked", "WJ1005", "high", "The certificate is revoked.", attack=True),
    Reason(
        "expired", "WJ1006", "low", "The certificate has expired; the node has to attest again."
    ),
    Reason("superseded", "WJ1007", "medium", "The node has a newer certificate."),
    Reason(
        "reply-key",
        "WJ1008",
        "low",
        "The request brings no key to seal its answer to, and commands are never answered in clear.",
    ),
)


def _named(reasons: tuple[Reason, ...]) -> dict[str, Reason]:
    return {reason.name: reason for reason in reasons}


CORE: dict[str, Reason] = _named(JOIN_REFUSALS + JOIN_INVALID)
"""The reasons under `join`, by name."""

CORE_BY_ID: dict[str, dict[str, Reason]] = {
    "join": CORE,
    "renew": _named(RENEWAL),
    "command": _named(COMMANDS),
}
"""The core's own reasons, by the id that they stand under."""

STANDARD_BY_NAME: dict[str, Reason] = _named(STANDARD)
