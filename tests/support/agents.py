"""A service for agents to talk to: real keys, real seals and signatures, answers as a test wants them."""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from tests.support.crypto import NODE_ID, NOW, TRUST_DOMAIN, authority, jws_signer
from watchword.handlers.attestors.join_token.evidence import new_token
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.csr import Csr, check_possession, load_csr
from watchword.handlers.crypto.endorsements import endorse, pin_of
from watchword.handlers.crypto.keysets import HeldKey, sign_key_set, sign_trust_bundle
from watchword.handlers.crypto.profile import CertificateOrder
from watchword.handlers.crypto.responses import Answers, Question
from watchword.handlers.prover import Prover
from watchword.schemas.canonical import read_length_prefixed, unb64
from watchword.schemas.commands import Command
from watchword.schemas.ids import Role
from watchword.schemas.requests import Claims, JoinRequest
from watchword.schemas.responses import Failure
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import TransportUnavailable
from watchword.streams.agent.join import JoinOptions, JoinResult, join
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.progress import Progress
from watchword.streams.agent.transport import Conversation
from watchword.streams.agent.trust import TrustKeeper

MONTH = timedelta(days=30)
TENANT = "acme"
POOL = "default"


class Service:
    """What a worker answers, without the judging."""

    def __init__(self, *, now: datetime = NOW) -> None:
        """Make fresh keys."""
        self.now = now
        self.jws = jws_signer()
        self.authority = authority(now=now)
        self.answers = Answers(self.jws)
        self.held = [self.held_key("e-1", now, now + MONTH)]
        self.version = 1
        self.issued = 0
        self.handovers: list[str] = []
        self.more_authorities: tuple[bytes, ...] = ()

    @property
    def pin(self) -> str:
        """What agents are told."""
        return pin_of(self.jws.public)

    @staticmethod
    def held_key(kid: str, not_before: datetime, not_after: datetime) -> HeldKey:
        """Return a fresh decryption key."""
        return HeldKey(kid, hpke.generate(), not_before, not_after)

    def key_set(self) -> bytes:
        """Return the signed key set."""
        return sign_key_set(
            self.jws,
            version=self.version,
            issued_at=self.now,
            trust_domain=TRUST_DOMAIN,
            encryption=self.held,
        )

    def trust_bundle(self) -> bytes:
        """Return the signed trust bundle."""
        return sign_trust_bundle(
            self.jws,
            version=self.version,
            issued_at=self.now,
            trust_domain=TRUST_DOMAIN,
            authorities=(*self.authority.chain, *self.more_authorities),
            handovers=self.handovers,
        )

    def hand_over(self, kid: str) -> None:
        """Have another signing key, which the one before vouches for."""
        new = jws_signer(kid)
        said = endorse(
            self.jws, kid=kid, public=new.public, issued_at=self.now, trust_domain=TRUST_DOMAIN
        )
        self.handovers.append(said.decode())
        self.jws, self.answers = new, Answers(new)
        self.version += 1

    def open(self, request: bytes) -> tuple[JoinRequest, Csr, bytes, Claims]:
        """Return what a worker would see of a request: the seal opens, and the CSR is its key's."""
        read = JoinRequest.read(request)
        csr = load_csr(unb64(read.csr))
        check_possession(csr)
        key = next(held.key for held in self.held if held.kid == read.encryption_key_id)
        inside = key.open(unb64(read.sealed), read.info(csr.sha256))
        payload, claims = read_length_prefixed(inside, 2)
        return read, csr, payload, Claims.read(claims)

    def question(self, request: bytes) -> Question:
        """Return how an answer names this request."""
        read = JoinRequest.read(request)
        return Question(
            sha256(request).digest(),
            read.request_id,
            load_csr(unb64(read.csr)).sha256,
            None if read.reply_key is None else unb64(read.reply_key),
        )

    def certificate(self, csr: Csr, *, node_id: str = NODE_ID, tenant: str = TENANT) -> bytes:
        """Return a node certificate for the key of a CSR."""
        ordered = CertificateOrder(
            csr.spki_der, tenant, node_id, None, self.now, self.now + timedelta(days=1)
        )
        self.issued += 1
        return self.authority.issue([ordered])[0].der

    def due(self, request: bytes) -> bytes:
        """Answer that the machine is a node, and should have renewed yesterday."""
        return self.joined(request, renew_after=self.now - timedelta(days=1))

    def joined(
        self,
        request: bytes,
        *,
        chain: tuple[bytes, ...] | None = None,
        renew_after: datetime | None = None,
    ) -> bytes:
        """Answer that the machine is a node."""
        if chain is None:
            _, csr, _, _ = self.open(request)
            chain = (self.certificate(csr), *self.authority.chain)
        return self.answers.joined(
            self.question(request),
            self.now,
            node_id=NODE_ID,
            tenant=TENANT,
            pool=POOL,
            site=None,
            role="node",
            chain=chain,
            allowed_kinds=None,
            renew_after=renew_after or self.now + timedelta(hours=16),
        )

    def approval(self, request: bytes, seconds: int = 30) -> bytes:
        """Answer that an operator has to agree first."""
        return self.answers.approval(self.question(request), self.now, retry_after_seconds=seconds)

    def challenge(
        self,
        request: bytes,
        challenge: bytes = b"challenge",
        *,
        attestor: str = "join-token",
        lifetime: timedelta = timedelta(minutes=5),
    ) -> bytes:
        """Answer with a challenge."""
        return self.answers.challenge(
            self.question(request),
            self.now,
            attestor=attestor,
            challenge=challenge,
            state=b"state of " + challenge,
            not_after=self.now + lifetime,
        )

    def told(self, request: bytes, *commands: Command, more: bool = False) -> bytes:
        """Answer with commands."""
        return self.answers.commands(self.question(request), self.now, commands, more=more)

    def refused(self, request: bytes) -> bytes:
        """Answer what everyone gets who stays out."""
        return self.answers.refused(self.question(request), self.now)

    def failed(self, request: bytes, code: Failure) -> bytes:
        """Answer that the request was not judged."""
        return self.answers.failed(self.question(request), self.now, code)


class Crash(BaseException):
    """The process dies here: nothing of the agent may catch it."""


Reaction = Callable[[bytes], bytes | None]
"""What happens to one request: an answer, nothing (None), or an exception."""


@dataclass(slots=True)
class Wire:
    """A transport in memory that reacts to each request in turn as a test says."""

    service: Service
    clock: AgentClock = field(default_factory=AgentClock)
    reactions: deque[Reaction] = field(default_factory=deque[Reaction])
    answers_are_shared: bool = False
    sent: list[bytes] = field(default_factory=list[bytes])
    """Every request as it was published."""
    extra: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    """What else arrives after the n-th publishing, before its answer."""
    is_away: bool = False
    """Whether the published documents cannot be fetched."""
    certificate_revocations: bytes | None = None
    crls: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """By the name of the CA."""
    fetched: int = 0
    """How often anything published was fetched."""
    on_silence: Callable[[float], None] | None = None

    def then(self, *reactions: Reaction) -> "Wire":
        """React like this to the next requests."""
        self.reactions.extend(reactions)
        return self

    @asynccontextmanager
    async def conversation(self, csr_sha256: bytes) -> AsyncGenerator[Conversation]:
        """Open a conversation."""
        del csr_sha256
        yield _WireConversation(self)

    async def key_set(self) -> bytes:
        """Return the service's key set."""
        self._reach()
        return self.service.key_set()

    async def trust_bundle(self) -> bytes:
        """Return the service's trust bundle."""
        self._reach()
        return self.service.trust_bundle()

    async def crl(self, ca: str | None = None) -> bytes | None:
        """Return what the test put there."""
        self._reach()
        return self.certificate_revocations if ca is None else self.crls.get(ca)

    async def close(self) -> None:
        """Do nothing."""

    def _reach(self) -> None:
        self.fetched += 1
        if self.is_away:
            raise TransportUnavailable


class _WireConversation:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._arrived: deque[bytes] = deque()

    async def publish(self, request: bytes) -> None:
        wire = self._wire
        wire.sent.append(request)
        self._arrived.extend(wire.extra.get(len(wire.sent), ()))
        if not wire.reactions:
            message = f"request {len(wire.sent)} was not expected"
            raise AssertionError(message)
        answer = wire.reactions.popleft()(request)
        if answer is not None:
            self._arrived.append(answer)

    async def receive(self, request_sha256: bytes, wait_s: float) -> bytes | None:
        del request_sha256
        if self._arrived:
            return self._arrived.popleft()
        if self._wire.on_silence is not None:
            self._wire.on_silence(wait_s)
        return None


class Time:
    """Both clocks of a machine, which go on only when somebody waits."""

    def __init__(self, wall: datetime = NOW) -> None:
        """Start the wall clock here."""
        self.wall_s = wall.timestamp()
        self.monotonic_s = 1000.0
        self.slept: list[float] = []
        self.clock = AgentClock(lambda: self.wall_s, lambda: self.monotonic_s)
        self.pace = Pace(sleep=self.sleep, draw=lambda: 0.5, monotonic=lambda: self.monotonic_s)

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.slept.append(seconds)
        self.pass_by(seconds)

    def pass_by(self, seconds: float) -> None:
        """Move both clocks."""
        self.wall_s += seconds
        self.monotonic_s += seconds


def token_prover() -> JoinTokenProver:
    """Return a prover of a fresh token."""
    return JoinTokenProver.of_text(new_token()[1])


def bootstrapped(state: Path, service: Service) -> Keystore:
    """Return a state directory in which the service's keys are pinned."""
    keystore = Keystore(state)
    with keystore.locked():
        keystore.write("trust-bundle.jws", service.trust_bundle())
        keystore.write("key-set.jws", service.key_set())
        keystore.write("pin", service.pin.encode())
    return keystore


def keeper(state: Path, wire: Wire, time: Time) -> TrustKeeper:
    """Return what keeps the trust of this state directory, by these clocks."""
    wire.clock = time.clock
    return TrustKeeper(Keystore(state), wire, pace=time.pace)


class ChallengedProver:
    """Answers challenges, and says what it was asked."""

    id = "join-token"

    def __init__(self) -> None:
        """Nothing has been asked yet."""
        self.asked: list[bytes] = []

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return bytes that name the CSR and the role."""
        return b"evidence for " + csr_sha256 + role.encode()

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Return bytes that name the challenge."""
        del csr_sha256, role
        self.asked.append(challenge)
        return b"answer to " + challenge


class Machine:
    """One machine with its state directory, its clocks, and a service to talk to."""

    def __init__(self, state: Path, *, now: datetime = NOW, service: Service | None = None) -> None:
        """Bootstrap it."""
        self.state = state
        self.service = service or Service(now=now)
        self.time = Time(now)
        self.wire = Wire(self.service, self.time.clock, on_silence=self.time.pass_by)
        self.keystore = bootstrapped(state, self.service)
        self.progress: list[Progress] = []
        self.prover: Prover = token_prover()

    async def join(self, *reactions: Reaction, options: JoinOptions | None = None) -> JoinResult:
        """Join, or go on, against a service that reacts like this."""
        self.wire.then(*reactions)
        return await join(
            self.state,
            self.wire,
            self.prover,
            options or JoinOptions(claims=Claims),
            report=self.progress.append,
            pace=self.time.pace,
        )

    def sent(self) -> list[JoinRequest]:
        """Return every request that was published."""
        return [JoinRequest.read(request) for request in self.wire.sent]


def modes(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield everything below the folder, and the folder, with its permission bits."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            yield path, path.stat().st_mode & 0o7777
