"""What attackers send instead of evidence, and what the service does to `verify` when the database was away."""

import random
from base64 import b64decode
from dataclasses import dataclass, replace
from typing import Any, Self

from watchword.handlers.attestor import (
    Admission,
    Attestor,
    Deferral,
    Evidence,
    JoinContext,
    Refused,
    Staged,
)
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.responses import JoinResponse

_SEED = 20_260_101


@dataclass(frozen=True)
class Asked:
    """A challenge in an answer."""

    challenge: bytes
    state: bytes

    @classmethod
    def of(cls, answer: JoinResponse) -> Self | None:
        """Return the challenge of an answer, if it is one."""
        deferred = answer.deferred
        if deferred is None or deferred.challenge is None or deferred.state is None:
            return None
        return cls(b64decode(deferred.challenge), b64decode(deferred.state))


def mutations(payload: bytes, most: int) -> list[bytes]:
    """Return changed copies of evidence: bits turned round all over it, cut, lengthened, doubled; each once."""
    chance = random.Random(_SEED)  # noqa: S311 - the same changes in every run
    step = max(1, len(payload) // max(1, most))
    found = [b"", payload[:-1], payload[: len(payload) // 2], payload + b"\0", payload + payload]
    found += [b"\0" + payload, payload + b" ", payload[1:]]
    for at in range(0, len(payload), step):
        turned = bytearray(payload)
        turned[at] ^= 1 << chance.randrange(8)
        found.append(bytes(turned))
    return [one for one in dict.fromkeys(found) if one != payload]


def strangers_bytes() -> list[bytes]:
    """Return what nobody made as evidence: nothing, noise, other formats, too much of everything."""
    chance = random.Random(_SEED)  # noqa: S311 - the same noise in every run
    return [
        b"",
        b"\0",
        b"null",
        b"{}",
        b"[]",
        b'{"a":' * 500,
        b"[" * 5000,
        b'{"tenant":"acme","pool":"web","role":"node"}',
        b"1e999",
        b"\xff\xfe\xfd",
        "\N{BILLIARDS}".encode("utf-16"),
        length_prefixed(b"", b""),
        length_prefixed(b"", b"", b"", b""),
        b"\xff\xff\xff\xff" + bytes(60),
        bytes(64 * 1024),
        chance.randbytes(1024),
        b"eyJhbGciOiJub25lIn0.e30.",
    ]


class Twice:
    """Runs every verification two times, as the service does when a batch is tried again."""

    def __init__(self, attestor: Attestor) -> None:
        """Take the attestor."""
        self.id = attestor.id
        self.version = attestor.version
        self.roles = attestor.roles
        self.reasons: Any = getattr(attestor, "reasons", ())
        self._attestor = attestor
        self.difference: str | None = None
        """What came of the second run, if it was something else than of the first."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Verify in vain, and again for good."""
        first = await self._once(evidence, replace(context, staged=Staged()))
        second = await self._once(evidence, context)
        if _kind(first) != _kind(second):
            self.difference = f"first {_kind(first)}, then {_kind(second)}"
        if isinstance(second, Exception):
            raise second
        return second

    async def _once(
        self, evidence: Evidence, context: JoinContext
    ) -> Admission | Deferral | Exception:
        try:
            return await self._attestor.verify(evidence, context)
        except Exception as error:  # noqa: BLE001 - compared, and raised again
            return error


def _kind(found: Admission | Deferral | Exception) -> str:
    match found:
        case Refused():
            return f"refused as {found.reason}"
        case Admission():
            return f"admitted as {found}"
        case _:
            return type(found).__name__
