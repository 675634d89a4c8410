"""An attestor that asks an operator about everybody."""

from hashlib import sha256

from tests.support.joins import Machine
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext, Subject
from watchword.schemas.ids import ROLES, TenantId


class Doorman:
    """Admits whoever an operator agrees to; the payload names pool and machine."""

    id = "doorman"
    version = "1"
    roles = ROLES
    reasons = ()

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Ask an operator, unless one has agreed."""
        pool, name = evidence.payload.decode().split("/")
        subject = sha256(name.encode()).digest()
        grant = Admission(
            tenant=TenantId("acme"),
            role=context.role,
            pool=pool,
            bind=subject,
            subjects=(Subject("name", name),),
        )
        if await context.requests.approved(subject, grant):
            context.use_once(sha256(b"use" + subject).digest())
            return grant
        return context.request_approval(subject, grant, {"name": name, "claimedMood": "good"})


def asks(machine: Machine, pool: str = "web", name: str = "m1") -> bytes:
    """Return a request of a machine that the doorman judges."""
    return machine.request(f"{pool}/{name}".encode(), attestor="doorman")
