"""An attestor that is right, and the same with one fault: what the conformance suite has to find."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_bytes

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    Reason,
    Role,
    SchemaError,
    SealBroken,
    TenantId,
    length_prefixed,
    read_length_prefixed,
    refuser,
)
from watchword.handlers.prover import NoEvidence
from watchword.handlers.store.connection import Database

ID = "badge"
LIFE = timedelta(minutes=10)

REASONS = (
    Reason("malformed", "BADGE0001", "low", "The evidence is no badge."),
    Reason("bad-signature", "BADGE0002", "high", "The badge is not signed.", attack=True),
    Reason("stale", "BADGE0003", "medium", "The badge has ended."),
    Reason("no-challenge", "BADGE0004", "high", "The answer is to no challenge.", attack=True),
)

FAULTS = (
    "another-csr",
    "no-signature",
    "undeclared-reason",
    "raises",
    "returns-nothing",
    "tenant-too-early",
    "no-role",
    "no-binding",
    "memory",
    "own-connection",
    "never-ends",
    "trailing-bytes",
    "no-state",
    "broken-seal",
    "spends-with-challenge",
)

refuse = refuser(ID)


def text(fault: str, role: str, tag: bytes, ends: bytes, csr_sha256: bytes, nonce: bytes) -> bytes:
    """Return what is signed."""
    return length_prefixed(
        b"badge v1",
        b"" if fault == "no-role" else role.encode(),
        tag,
        ends,
        b"" if fault == "another-csr" else csr_sha256,
        nonce,
    )


@dataclass
class Badge:
    """Believes whoever `key` has signed for, and has one `fault` or none."""

    key: Ed25519PrivateKey
    rounds: int = 1
    fault: str = ""
    dsn: str = ""
    """Where the fault `own-connection` writes."""
    id: str = ID
    version: str = "1"
    roles: frozenset[Role] = frozenset(("node", "site"))
    reasons: tuple[Reason, ...] = REASONS
    seen: set[bytes] = field(default_factory=set[bytes])

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Admit whoever has a badge for this CSR and role."""
        if self.fault == "own-connection":
            await self._write()
        payload = bytes(evidence.payload)
        nonce = b""
        if self.rounds > 1:
            try:
                state = context.open_state()
            except SealBroken:
                if self.fault == "broken-seal":
                    raise
                raise refuse("no-challenge") from None
            if state is None and payload == b"hello":
                return self._challenge(context)
            nonce = b"" if state is None else state
        tag, ends, signature, answered = self._parsed(payload)
        if self.fault == "no-state" and not nonce:
            nonce = answered
        if self.rounds > 1 and (not nonce or nonce != answered):
            raise refuse("no-challenge")
        if self.fault != "no-signature":
            try:
                signed = text(self.fault, context.role, tag, ends, context.csr_sha256, nonce)
                self.key.public_key().verify(signature, signed)
            except InvalidSignature:
                reason = "odd" if self.fault == "undeclared-reason" else "bad-signature"
                tenant = TenantId("acme") if self.fault == "tenant-too-early" else None
                raise refuse(reason, tenant_id=tenant) from None
        tenant = TenantId("acme")
        if self.fault != "never-ends" and context.now >= _time(ends):
            raise refuse("stale", tenant_id=tenant)
        if self.fault == "memory":
            if payload in self.seen:
                raise refuse("replayed", tenant_id=tenant)
            self.seen.add(payload)
        bind = None if self.fault == "no-binding" else sha256(tag).digest()
        return Admission(tenant, context.role, "web", bind=bind)

    def _challenge(self, context: JoinContext) -> Challenge:
        nonce = token_bytes(32)
        if self.fault == "spends-with-challenge":
            context.use_once(nonce)
        return Challenge(nonce, context.seal_state(nonce, LIFE), context.now + LIFE)

    def _parsed(self, payload: bytes) -> tuple[bytes, bytes, bytes, bytes]:
        if self.fault == "trailing-bytes":
            payload = payload.rstrip(b" ")
        try:
            tag, ends, signature, nonce = read_length_prefixed(payload, 4)
            if len(ends) != 8 or len(signature) != 64 or not 0 < len(tag) <= 64:
                raise refuse("malformed")
        except SchemaError:
            if self.fault == "raises":
                raise
            if self.fault == "returns-nothing":
                return None  # type: ignore[return-value]
            raise refuse("malformed") from None
        return tag, ends, signature, nonce

    async def _write(self) -> None:
        database = Database(self.dsn, application_name="badge")
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO plg_badge__seen DEFAULT VALUES")
        await database.close()


@dataclass
class BadgeProver:
    """A machine with a badge."""

    issuer: Ed25519PrivateKey
    now: Callable[[], datetime]
    rounds: int = 1
    fault: str = ""
    tag: bytes = field(default_factory=lambda: token_bytes(8).hex().encode())
    id: str = ID

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return a badge, or a greeting if a challenge comes first."""
        return b"hello" if self.rounds > 1 else self._signed(csr_sha256, role, b"")

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Return a badge over the challenge."""
        if self.rounds == 1:
            raise NoEvidence
        return self._signed(csr_sha256, role, challenge)

    def _signed(self, csr_sha256: bytes, role: Role, nonce: bytes) -> bytes:
        ends = int((self.now() + LIFE).timestamp()).to_bytes(8, "big")
        signed = text(self.fault, role, self.tag, ends, csr_sha256, nonce)
        return length_prefixed(self.tag, ends, self.issuer.sign(signed), nonce)


def _time(ends: bytes) -> datetime:
    seconds = min(int.from_bytes(ends, "big"), 2**37)
    return datetime.fromtimestamp(seconds, UTC)
