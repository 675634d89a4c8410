"""A session that writes down what a settlement asks for, and judgements for it: no database, no time.

What a statement does is PostgreSQL's to show; this shows which are asked for, in which order and with what.
"""

import asyncio
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from tests.support.attestors.scripted import Scripted
from tests.support.deciding import NODE, NOW, SUBJECT, digest, node
from watchword.handlers.attestor import Admission, Approval
from watchword.handlers.catalog import Catalog
from watchword.handlers.errors import Refused
from watchword.handlers.join.approvals import ApprovalRules
from watchword.handlers.join.candidate import Candidate, Fetch, Waits
from watchword.handlers.join.deciding import Effects, World
from watchword.handlers.join.outcomes import Outcomes
from watchword.handlers.join.ports import Session
from watchword.handlers.join.settlement import decided, settle
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.rows import CertificateRow, Renewable
from watchword.schemas.commands import Report
from watchword.schemas.ids import AttestorId, TenantId

FIRST, LAST = UUID(int=1), UUID(int=1 << 120)
GRANTS = (UUID(int=90), UUID(int=91))
LATER = NOW + timedelta(seconds=30)
RULES = ApprovalRules(ttl=timedelta(hours=2))
_WON_WHOLE = {"claim_admissions", "claim_uses", "claim_bindings"}


class Asked:
    """Stands where the connection is: writes down what is asked for, and answers what a test puts there.

    Without an answer, claims are won and nothing else is found.
    """

    def __init__(self, **answers: Any) -> None:  # noqa: ANN401 - whatever a statement returns
        """Take answers by the names of the session's methods."""
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of a session
        """Return the method."""

        async def ask(*given: Any) -> Any:  # noqa: ANN401 - as a session's
            self.calls.append((name, given))
            if name in self.answers:
                return self.answers[name]
            if name in _WON_WHOLE:
                return set(given[0])
            if name == "claim_requests":
                return {request.key for request in given[0]}
            return set[Any]() if name in ("banned", "claim_inbox") else dict[Any, Any]()

        return ask

    @property
    def names(self) -> list[str]:
        """The methods in the order in which they were called."""
        return [name for name, _ in self.calls]

    def given(self, name: str) -> tuple[Any, ...]:
        """Return what a method was given, the only time."""
        [given] = [given for each, given in self.calls if each == name]
        return given

    @property
    def session(self) -> Session:
        """Itself, as what a settlement takes."""
        return cast("Session", self)


def locked(asked: Asked, *batch: Candidate) -> tuple[World, Effects]:
    """Claim, lock and decide."""
    return asyncio.run(decided(asked.session, batch, NOW, RULES))


def settled(asked: Asked, *batch: Candidate, kinds: frozenset[str] = BUILT_IN) -> Effects:
    """Settle a batch in a deployment with these kinds of commands."""
    outcomes = Outcomes(
        Catalog([Scripted()]),
        worker="w0",
        source="/watchword/test",
        approvals=RULES,
        registered_kinds=kinds,
    )
    return asyncio.run(settle(asked.session, batch, NOW, outcomes))


def refused(reason: str = "no") -> Refused:
    """Return a refusal of the tenant's."""
    return Refused(AttestorId("acme-asset"), reason, tenant_id=TenantId("acme"))


def renewable(of: UUID = NODE) -> Renewable:
    """Return the certificate that a node shows."""
    certificate = CertificateRow(
        digest("tbs"), of, digest("spki"), NOW, NOW, (), None, is_current=True, revoked=False
    )
    return Renewable(
        digest("csr"), b"s" * 16, certificate, node(id=of), digest("new"), contested=False
    )


def waits(tenant: str = "acme", site: str | None = None, subject: bytes = SUBJECT) -> Waits:
    """Return that an operator has to agree."""
    grant = Admission(tenant=TenantId(tenant), role="node", pool="web", site=site)
    return Waits(Approval(subject, grant), (b"ban of who waits",), LATER)


def fetch(of: UUID = NODE, *reports: UUID, stopped: Refused | None = None) -> Fetch:
    """Return that a node asks for commands, and speaks of others."""
    spoken_of = [Report.model_construct(id=str(report), result="done") for report in reports]
    return Fetch(renewable(of), spoken_of, (b"ban of who asks",), stopped)
