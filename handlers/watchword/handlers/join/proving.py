"""Another attestor's proof within one verification: `JoinContext.others`.

The other attestor verifies as it would for a join of its own, with the same CSR, role, claims and time,
and under its own id: its bindings, its states, its uses. Two things it has not: an operator's word,
because what an operator was shown is another join; and others to ask, so that no proof rests on itself.
"""

from collections.abc import Callable

from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    Evidence,
    JoinContext,
    Staged,
)
from watchword.handlers.catalog import Catalog, Registered
from watchword.handlers.definition import brings_sql
from watchword.handlers.errors import AttestorBroken, NotProvable, Refused
from watchword.handlers.join.candidate import Proof
from watchword.handlers.join.contract import fault_in_effects, fault_of
from watchword.schemas.ids import AttestorId, Role, UnverifiedPayload
from watchword.schemas.requests import Claims


class NoWord:
    """Reads no operator's word: implements `attestor.RequestReads`."""

    async def approved(self, subject: bytes, grant: Admission) -> bool:
        """Return False: an operator has agreed to a join, and not to a part of another."""
        del subject, grant
        return False


class Proving:
    """Implements `attestor.OtherProofs` for one verification, and remembers what came of it."""

    def __init__(
        self,
        catalog: Catalog,
        asking: Registered,
        role: Role,
        claims: Claims,
        context_of: Callable[[Registered, bytes | None], JoinContext],
        declared: Callable[[Registered, Refused], Refused],
    ) -> None:
        """Take who asks for which role; what makes the other's context around a state, and the core's refusal of its."""
        self._catalog = catalog
        self._asking = asking
        self._role = role
        self._claims = claims
        self._context_of = context_of
        self._declared = declared
        self._was_asked = False
        self.refused: Refused | None = None
        """The other's refusal: the join's, whatever whoever asked makes of it."""
        self.proof: Proof | None = None
        """What the other proved, and what goes with it."""
        self.is_challenged = False
        """Whether the other has proved nothing yet and waits for an answer."""

    async def prove(
        self, attestor: str, payload: UnverifiedPayload, state: bytes | None = None
    ) -> Admission | Challenge:
        """See `attestor.OtherProofs`."""
        # 1. Once, by somebody else who is installed, takes the role and brings no SQL of its own.
        # 2. It verifies in a context of its own; its refusal is kept.
        # 3. What it returns is within the contract, and for this role.
        # 4. An operator's word would be about another join: nothing is proved.

        # Step 1
        if self._was_asked:
            message = "one proof in a verification"
            raise RuntimeError(message)
        self._was_asked = True
        other = self._other(attestor)
        if not _are_bytes(payload, state):
            message = "evidence and state are bytes"
            raise TypeError(message)

        # Step 2
        context = self._context_of(other, state)
        try:
            found = await other.attestor.verify(Evidence(payload, self._claims), context)
        except Refused as refused:
            self.refused = self._declared(other, refused)
            raise self.refused from None

        # Step 3
        was = context.staged
        staged = Staged(list(was.spends), list(was.uses))
        if (fault := fault_of(found) or fault_in_effects(staged)) is not None:
            message = f"{attestor}: {fault}"
            raise AttestorBroken(message)
        if isinstance(found, Challenge):
            if staged.spends or staged.uses:
                message = f"{attestor}: spends staged with a deferral"
                raise AttestorBroken(message)
            self.is_challenged = True
            return found

        # Step 4
        if isinstance(found, Approval):
            raise NotProvable
        if found.role != self._role:
            message = f"{attestor}: another role"
            raise AttestorBroken(message)
        self.proof = Proof(AttestorId(attestor), found, staged)
        return found

    def _other(self, attestor: str) -> Registered:
        found = self._catalog.get(AttestorId(attestor))
        if (
            found is None
            or found is self._asking
            or self._role not in found.attestor.roles
            or brings_sql(found.attestor)
        ):
            raise NotProvable
        return found


def _are_bytes(payload: object, state: object) -> bool:
    """Tell whether an author has passed on what the contract says."""
    return isinstance(payload, bytes) and isinstance(state, bytes | None)
