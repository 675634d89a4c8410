"""A machine's agent in a test: it asks its prover, follows challenges and waits for operators."""

from base64 import b64decode
from dataclasses import dataclass, field
from typing import Literal

from cryptography import x509

from watchword.handlers.attestor import Claims, Role
from watchword.handlers.prover import Prover
from watchword.handlers.testkit.machine import Machine
from watchword.handlers.testkit.service import Event, Refusal, ServiceUnderTest
from watchword.schemas.responses import JoinResponse

_MOST_ROUNDS = 16


@dataclass(frozen=True)
class Round:
    """One request and its answer."""

    payload: bytes = field(repr=False)
    state: bytes | None = field(repr=False)
    request: bytes = field(repr=False)
    """The very bytes that were sent."""
    answer: JoinResponse


@dataclass(frozen=True)
class JoinResult:
    """What came of a join."""

    machine: Machine
    attestor: str
    role: Role
    rounds: tuple[Round, ...]
    certificate: x509.Certificate | None
    """The node's, if it joined; its key is the machine's."""
    events: tuple[Event, ...]
    """Domain events of the join, such as `node.joined`."""
    refusals: tuple[Refusal, ...]
    """Why the machine was refused, as the security team sees it."""

    @property
    def answer(self) -> JoinResponse:
        """The last answer."""
        return self.rounds[-1].answer

    @property
    def outcome(self) -> str:
        """`joined`, `deferred`, `refused` or `failed`."""
        return self.answer.outcome

    @property
    def node_id(self) -> str | None:
        """The node's id, if it joined."""
        return None if self.answer.joined is None else self.answer.joined.node_id


async def run_agent_join(
    service: ServiceUnderTest,
    prover: Prover,
    *,
    role: Role = "node",
    machine: Machine | None = None,
    claims: Claims | None = None,
    operator: Literal["absent", "approves", "rejects"] = "absent",
) -> JoinResult:
    """Join as an agent does, and return what came of it. The attestor is the one of the prover's `id`.

    Challenges go back to the prover, under the same key. A join that waits for an operator ends as
    `deferred` if the operator is absent; otherwise the machine comes again with fresh evidence.

    Raises:
        NoEvidence: the prover has none.
    """
    machine = machine or service.machine()
    before = await service.last_seq()
    rounds: list[Round] = []
    payload = await prover.evidence(machine.csr_sha256, role)
    state: bytes | None = None
    for _ in range(_MOST_ROUNDS):
        request = machine.request(
            payload, attestor=prover.id, role=role, claims=claims, state=state
        )
        [answer] = await service.ask(request)
        rounds.append(Round(payload, state, request, answer))
        deferred = answer.deferred
        if deferred is None:
            break
        if deferred.type == "challenge":
            state = b64decode(deferred.state or "")
            challenge = b64decode(deferred.challenge or "")
            payload = await prover.answer(challenge, machine.csr_sha256, role)
        elif operator == "absent":
            break
        else:
            decide = service.approve_all if operator == "approves" else service.reject_all
            await decide()
            payload, state = await prover.evidence(machine.csr_sha256, role), None
    else:
        message = f"no end after {_MOST_ROUNDS} rounds"
        raise AssertionError(message)
    return JoinResult(
        machine,
        prover.id,
        role,
        tuple(rounds),
        _certificate(rounds[-1].answer, machine),
        tuple(await service.events(after=before)),
        tuple(await service.refusals(csr_sha256=machine.csr_sha256)),
    )


def _certificate(answer: JoinResponse, machine: Machine) -> x509.Certificate | None:
    if answer.joined is None:
        return None
    certificate = x509.load_der_x509_certificate(b64decode(answer.joined.chain[0]))
    assert certificate.public_key() == machine.key.public_key(), "a certificate of another key"
    return certificate
