"""Candidates and what locks showed of them, for tests of the decision: no database, no time, no chance."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from watchword.handlers.attestor import Admission, Approval, Staged
from watchword.handlers.errors import Refused
from watchword.handlers.join.candidate import Admit, Candidate, Judgement, Refusal, Waits
from watchword.handlers.join.deciding import World, csr_claim, decide, key_claim
from watchword.handlers.join.records import Incoming
from watchword.handlers.rows import AdmittedCsr, NodeRow, TokenState
from watchword.schemas.ids import AttestorId, TenantId, TokenId

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOKEN = TokenId("0123456789abcdef")
SUBJECT = b"u" * 32
BOUND = ("acme-asset", b"b" * 32)
NODE = UUID(int=77)
OTHER = UUID(int=5)
LAST = UUID(int=1 << 120)
GRANT = UUID(int=9)
MOMENT = timedelta(microseconds=1)

_numbers = count(1)


def anew(of: UUID = NODE) -> UUID:
    """Return an id as another read of it makes it: equal, and another object."""
    return UUID(int=of.int)


def digest(name: str) -> bytes:
    """Return 32 bytes of this name."""
    return sha256(name.encode()).digest()


def candidate(judgement: Judgement, *, csr: str = "", key: str = "") -> Candidate:
    """Return a request with a CSR and a key of these names, or of its own."""
    number = next(_numbers)
    made = Candidate(Incoming(str(number).encode(), "join.requests", 0, number))
    made.problem = None
    made.attestor = AttestorId("acme-asset")
    names: Any = SimpleNamespace(
        sha256=digest(csr or f"csr{number}"), spki_sha256=digest(key or f"key{number}")
    )
    made.csr = names
    made.judgement = judgement
    return made


def admit(**changes: Any) -> Admit:  # noqa: ANN401 - any field
    """Return an admission that wants nothing but its CSR and key."""
    admission = Admission(tenant=TenantId("acme"), role="node", pool="web")
    made = Admit(admission, Staged(), UUID(int=1000 + next(_numbers)), None, (), ())
    return replace(made, **changes)


def rekey(**changes: Any) -> Admit:  # noqa: ANN401 - any field
    """Return an admission of a machine that is a node already."""
    return admit(node_id=NODE, rekeys=node(), **changes)


def refused() -> Refusal:
    """Return the refusal of a verifier."""
    return Refusal(Refused(AttestorId("acme-asset"), "no"))


def waits(*ban_subjects: bytes) -> Waits:
    """Return that an operator has to agree."""
    grant = Admission(tenant=TenantId("acme"), role="node", pool="web")
    return Waits(Approval(SUBJECT, grant), ban_subjects, NOW + timedelta(seconds=30))


def spends(times: int = 1) -> Staged:
    """Return what a verifier staged that spends the token."""
    return Staged(spends=[TOKEN] * times)


def uses() -> Staged:
    """Return what a verifier staged that uses something once."""
    return Staged(uses=[(SUBJECT, None)])


def world(candidates: Iterable[Candidate], **changes: Any) -> World:  # noqa: ANN401 - any field
    """Return a world in which the candidates won all that they want."""
    made = World(NOW)
    for one in candidates:
        wanted = one.judgement
        if not isinstance(wanted, Admit):
            continue
        made.admissions_won |= {csr_claim(one), key_claim(one)}
        made.uses_won |= {("acme-asset", subject) for subject, _ in wanted.staged.uses}
        made.bindings_won |= set(wanted.bindings)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def said(one: Candidate) -> str:
    """Return the judgement in a word."""
    judgement = one.judgement
    if isinstance(judgement, Refusal):
        return str(judgement.refused)
    return type(judgement).__name__


def refusal_of(one: Candidate) -> Refused:
    """Return why it is refused."""
    assert isinstance(one.judgement, Refusal)
    return one.judgement.refused


def decided(candidates: list[Candidate], **changes: Any) -> list[str]:  # noqa: ANN401 - any field
    """Return what becomes of a batch that won all that it wants, but for these changes."""
    decide(candidates, world(candidates, **changes))
    return [said(one) for one in candidates]


def state(left: int = 1, **changes: Any) -> dict[str, TokenState]:  # noqa: ANN401 - any field
    """Return the token under its lock."""
    return {TOKEN: replace(TokenState(left, None, revoked=False), **changes)}


def node(**changes: Any) -> NodeRow:  # noqa: ANN401 - any field
    """Return a node's row."""
    return replace(
        NodeRow(NODE, "acme", "web", None, "node", "active", "acme-asset", None, None, 1), **changes
    )


def admission(csr: str, *, stands: bool = True, of: UUID = NODE) -> AdmittedCsr:
    """Return the admission that a CSR of this name had before."""
    return AdmittedCsr(
        digest(csr), of, b"s", b"d", NOW, NOW, None, stands, "acme", "web", None, "node"
    )
