"""The machines of a run: real agents with state directories of their own, some of which must stay out."""

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from watchword.handlers.attestors.join_token.evidence import encode, new_token, parse_token
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.handlers.errors import WatchwordError
from watchword.schemas.canonical import b64
from watchword.schemas.ids import Role
from watchword.schemas.requests import Claims, JoinRequest
from watchword.streams.agent.answers import read_answer
from watchword.streams.agent.bootstrap import bootstrap
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import GaveUp, JoinRefused
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.agent.join import JoinOptions, join
from watchword.streams.agent.kafka_transport import KafkaTransport
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.rounds import choose_key, make_round
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import Trust
from watchword.streams.dev.expectations import JOINED, Machine, Way
from watchword.streams.kafka_clients import KafkaConnection

_GIVE_UP_S = 60.0
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Tokens:
    """Texts of the tokens of a run."""

    fleet: str
    """For many nodes."""
    single: str
    """For one node."""
    revoked: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One machine to be: `token` is what it shows, `after` a machine that has to be through before it."""

    name: str
    way: Way
    token: str
    expected: str = JOINED
    role: Role = "node"
    after: str | None = None
    moves_evidence: bool = False
    """A thief in between takes another machine's sealed evidence for a CSR of its own."""


def plans(tokens: Tokens) -> tuple[Plan, ...]:
    """Return 20 machines that come by the gateway and 5 that come straight over Kafka."""
    fleet = tokens.fleet
    wrong = _with_another_secret(fleet)
    _, nobodys, _ = new_token()
    ordinary = [Plan(f"rack-{number:02}", "gateway", fleet) for number in range(1, 14)]
    return (
        *ordinary,
        Plan("single-1", "gateway", tokens.single),
        Plan("single-2", "gateway", tokens.single, "join-token:used-up", after="single-1"),
        Plan("guess-1", "gateway", wrong, "join-token:bad-secret"),
        Plan("guess-2", "gateway", wrong, "join-token:bad-secret"),
        Plan("not-a-site", "gateway", fleet, "join-token:wrong-role", role="site"),
        Plan("thief", "gateway", fleet, "join:unseal", moves_evidence=True),
        Plan("revoked", "gateway", tokens.revoked, "join-token:revoked"),
        Plan("kafka-1", "kafka", fleet),
        Plan("kafka-2", "kafka", fleet),
        Plan("kafka-3", "kafka", fleet),
        Plan("kafka-guess", "kafka", wrong, "join-token:bad-secret"),
        Plan("kafka-nobody", "kafka", nobodys, "join-token:unknown-token"),
    )


def fleet_uses(tokens: Tokens) -> int:
    """Return how many uses of the fleet's token the plans spend."""
    return sum(p.token == tokens.fleet and p.expected == JOINED for p in plans(tokens))


def _with_another_secret(text: str) -> str:
    _, other, _ = new_token()
    return ".".join((*text.split(".")[:2], other.split(".")[2]))


class Fleet:
    """Sends machines, and keeps what each was told."""

    def __init__(
        self,
        folder: Path,
        *,
        gateway: str,
        kafka: KafkaConnection,
        pin: str,
        told: Callable[[Machine, float], None],
    ) -> None:
        """Take a folder for this run's state directories; `told` hears of each outcome, and its seconds."""
        self._folder = folder
        self._gateway = gateway
        self._kafka = kafka
        self._pin = pin
        self._told = told
        self._through: dict[str, asyncio.Event] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def run(self, wanted: Sequence[Plan]) -> tuple[Machine, ...]:
        """Send all of them, a few at once; return them in the order of the plans."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True)
        self._through = {plan.name: asyncio.Event() for plan in wanted}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._send(plan)) for plan in wanted]
        return tuple(task.result() for task in tasks)

    async def _send(self, plan: Plan) -> Machine:
        if plan.after is not None:
            await self._through[plan.after].wait()
        async with self._places, self._transport(plan.way) as transport:
            began = time.monotonic()
            state = self._folder / plan.name
            try:
                trust = await bootstrap(state, transport, pin=self._pin)
                if plan.moves_evidence:
                    csr_sha256, seen = await _steal(state, transport, trust, plan)
                else:
                    csr_sha256, seen = await _join(state, transport, plan)
            except WatchwordError as error:
                csr_sha256, seen = "", f"{type(error).__name__}: {error}"
        machine = Machine(plan.name, plan.way, plan.expected, csr_sha256, seen)
        self._through[plan.name].set()
        self._told(machine, time.monotonic() - began)
        return machine

    @asynccontextmanager
    async def _transport(self, way: Way) -> AsyncGenerator[Transport]:
        transport: Transport = (
            HttpTransport(self._gateway) if way == "gateway" else KafkaTransport(self._kafka)
        )
        try:
            yield transport
        finally:
            await transport.close()


async def _join(state: Path, transport: Transport, plan: Plan) -> tuple[str, str]:
    """Return the SHA-256 of the machine's CSR, and what became of it."""
    csrs: list[str] = []
    options = JoinOptions(role=plan.role, claims=Claims, give_up_after_s=_GIVE_UP_S)
    prover = JoinTokenProver.of_text(plan.token)
    try:
        result = await join(
            state, transport, prover, options, report=lambda step: csrs.append(step.csr_sha256)
        )
    except JoinRefused:
        return csrs[-1], "refused"
    return result.identity.node.csr_sha256, JOINED


async def _steal(state: Path, transport: Transport, trust: Trust, plan: Plan) -> tuple[str, str]:
    """Do what a gateway could try: put a CSR of one's own beside evidence that was sealed for another."""
    victim = Keystore(state / "victim")
    thief = Keystore(state / "thief")
    for keystore in (victim, thief):
        keystore.directory.mkdir(mode=0o700)
    theirs, ours = victim.begin_exchange("p256"), thief.begin_exchange("p256")
    token = parse_token(plan.token)
    sealed = make_round(
        theirs,
        attestor="join-token",
        role=plan.role,
        payload=encode(token.id, token.secret),
        claims=Claims(),
        key=choose_key(trust.key_set, AgentClock()),
    )
    request = JoinRequest.read(sealed.request_bytes())
    moved = request.model_copy(update={"csr": b64(ours.csr_der)}).write()
    sent = sealed.model_copy(update={"request": b64(moved)})
    async with transport.conversation(ours.csr_sha256) as conversation:
        await conversation.publish(moved)
        until = time.monotonic() + _GIVE_UP_S
        while (left_s := until - time.monotonic()) > 0:
            answer = await conversation.receive(sha256(moved).digest(), left_s)
            if answer is None:
                continue
            response = read_answer(answer, trust=trust, exchange=ours, sent=sent)
            if response is not None:
                return ours.csr_sha256.hex(), response.outcome
    raise GaveUp
