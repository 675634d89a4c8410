"""A join context without a database: what a verifier reads is what a test puts there."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.crypto import csr_of
from watchword.handlers.anchors import CloudAccount, DiscoverySite, Image, TpmEndorsement, TpmPolicy
from watchword.handlers.attestor import (
    Admission,
    Challenge,
    JoinContext,
    Node,
    NodeCertificate,
    Staged,
    Subject,
    Token,
)
from watchword.handlers.crypto.csr import load_csr
from watchword.handlers.crypto.state import StateSealer
from watchword.handlers.errors import Refused, WatchwordError
from watchword.schemas.ids import AttestorId, NodeId, Role, TenantId, UnverifiedPayload

_Result = TypeVar("_Result")


def run(verifying: Coroutine[Any, Any, _Result]) -> _Result:
    """Return the result of a coroutine that waits for nothing; a loop for each would cost more than it does."""
    try:
        verifying.send(None)
    except StopIteration as done:
        result: _Result = done.value
        return result
    message = "it waits for something"
    raise RuntimeError(message)


@dataclass
class Facts:
    """What stands in the tables, as far as typed reads show it."""

    tokens: dict[str, Token] = field(default_factory=dict[str, Token])
    nodes_by_id: dict[UUID, Node] = field(default_factory=dict[UUID, Node])
    certificates: dict[bytes, NodeCertificate] = field(default_factory=dict[bytes, NodeCertificate])
    subjects: dict[Subject, list[NodeId]] = field(default_factory=dict[Subject, list[NodeId]])
    bound: dict[bytes, NodeId] = field(default_factory=dict[bytes, NodeId])
    images: dict[str, Image] = field(default_factory=dict[str, Image])
    sites: dict[str, DiscoverySite] = field(default_factory=dict[str, DiscoverySite])
    accounts: dict[tuple[str, str], CloudAccount] = field(
        default_factory=dict[tuple[str, str], CloudAccount]
    )
    endorsements: dict[bytes, TpmEndorsement] = field(default_factory=dict[bytes, TpmEndorsement])
    tpm_policies: dict[tuple[str, str], TpmPolicy] = field(
        default_factory=dict[tuple[str, str], TpmPolicy]
    )
    agrees: bool = False
    """Whether an operator has agreed to whatever is asked."""
    proofs: dict[tuple[str, bytes], Admission | Challenge | WatchwordError] = field(
        default_factory=dict[tuple[str, bytes], Admission | Challenge | WatchwordError]
    )
    """What other attestors prove, ask or raise, by their ids and evidence; anything else they refuse."""
    states_shown: list[bytes | None] = field(default_factory=list[bytes | None])
    """With which states of their own they were asked."""


class _Tokens:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def get(self, token_id: str) -> Token | None:
        return self._facts.tokens.get(token_id)


class _Nodes:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def certificate(self, tbs_sha256: bytes) -> NodeCertificate | None:
        return self._facts.certificates.get(tbs_sha256)

    async def with_subject(self, subject: Subject) -> Sequence[NodeId]:
        return self._facts.subjects.get(subject, [])

    async def with_subjects(
        self, subjects: Sequence[Subject]
    ) -> Mapping[Subject, Sequence[NodeId]]:
        return {subject: self._facts.subjects.get(subject, []) for subject in subjects}

    async def get(self, node_id: UUID) -> Node | None:
        return self._facts.nodes_by_id.get(node_id)


class _Bindings:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def get(self, subject: bytes) -> NodeId | None:
        return self._facts.bound.get(subject)


class _Requests:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def approved(self, subject: bytes, grant: Admission) -> bool:
        del subject, grant
        return self._facts.agrees


class _Anchors:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def image(self, image_id: str) -> Image | None:
        return self._facts.images.get(image_id)

    async def discovery_site(self, kid: str) -> DiscoverySite | None:
        return self._facts.sites.get(kid)

    async def cloud_account(self, provider: str, account: str) -> CloudAccount | None:
        return self._facts.accounts.get((provider, account))

    async def tpm_endorsement(self, ek_sha256: bytes) -> TpmEndorsement | None:
        return self._facts.endorsements.get(ek_sha256)

    async def tpm_policy(self, tenant: TenantId, pool: str) -> TpmPolicy | None:
        return self._facts.tpm_policies.get((tenant, pool))


class _Others:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def prove(
        self, attestor: str, payload: UnverifiedPayload, state: bytes | None = None
    ) -> Admission | Challenge:
        self._facts.states_shown.append(state)
        found = self._facts.proofs.get((attestor, payload))
        if found is None:
            raise Refused(AttestorId(attestor), "not-proved")
        if isinstance(found, WatchwordError):
            raise found
        return found


_STATES: Mapping[str, bytes] = {"c1": b"c" * 32}


class Desk:
    """Makes the contexts of one machine's rounds."""

    def __init__(self, attestor: str, role: Role = "node", facts: Facts | None = None) -> None:
        """Take who verifies, and what it may know."""
        self.facts = facts or Facts()
        self.csr = load_csr(csr_of(ec.generate_private_key(ec.SECP256R1())))
        self.now = datetime.now(UTC)
        self._attestor = attestor
        self._role: Role = role
        self._states = StateSealer(dict(_STATES), "c1")

    def context(self, state: bytes | None = None) -> JoinContext:
        """Return the context of a round."""

        def seal(data: bytes, expires_at: datetime) -> bytes:
            return self._states.seal(
                data,
                attestor=self._attestor,
                attestor_version="1",
                role=self._role,
                csr_sha256=self.csr.sha256,
                expires_at=expires_at,
                now=self.now,
            )

        def unseal(sealed: bytes) -> bytes:
            return self._states.open(
                sealed,
                attestor=self._attestor,
                attestor_version="1",
                role=self._role,
                csr_sha256=self.csr.sha256,
                now=self.now,
            )

        return JoinContext(
            attestor=AttestorId(self._attestor),
            csr_sha256=self.csr.sha256,
            public_key=self.csr.public_key,
            role=self._role,
            now=self.now,
            tokens=_Tokens(self.facts),
            nodes=_Nodes(self.facts),
            bindings=_Bindings(self.facts),
            requests=_Requests(self.facts),
            anchors=_Anchors(self.facts),
            staged=Staged(),
            state=state,
            seal=seal,
            unseal=unseal,
            others=_Others(self.facts),
        )
