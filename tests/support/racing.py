"""Several processes that judge overlapping lists of requests on one database at once."""

import asyncio
import base64
import json
import multiprocessing
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.attestors.scripted import Script, Scripted, ScriptedToken, Way
from tests.support.crypto import TRUST_DOMAIN, spki_of
from tests.support.joins import ANYTHING, KEY_ID, Machine
from watchword.handlers.attestors.join_token.evidence import encode
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.keysets import HeldKey
from watchword.handlers.crypto.responses import Answers
from watchword.handlers.crypto.signer import LocalSigner
from watchword.handlers.crypto.state import StateSealer
from watchword.handlers.join.candidate import Candidate
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.join.records import Answer, Incoming
from watchword.handlers.service import JoinClock, JoinEvents, JoinSeams, create_join_service
from watchword.handlers.store.connection import Database
from watchword.handlers.store.joins import PostgresJoinStore
from watchword.handlers.store.slots import SlotLimits
from watchword.schemas.ids import AttestorId

APPLICATION = "watchword-race"
SECRET = b"s" * 32
LIMITS = SlotLimits(per_reason=8, per_attestor=20, window_s=1.5)

HEAT = 60
"""So many requests in a row, which are judged at about the same time, want the same few things."""

FEW = [f"few{n:013}" for n in range(40)]
PLENTY = "plentyplentyplen"
TOKENS = dict.fromkeys(FEW, 4) | {PLENTY: 1_000_000}
"""Hot tokens by id, with their uses."""


@dataclass(frozen=True)
class KeyMaterial:
    """The keys of a deployment, as bytes that go to another process."""

    decryption: bytes
    signing: bytes
    ca_key: bytes
    ca_certificate: bytes

    @classmethod
    def fresh(cls) -> "KeyMaterial":
        """Return new keys."""
        key, certificate = create_ca(TRUST_DOMAIN, now=datetime.now(UTC) - timedelta(days=1))
        return cls(
            hpke.generate().private_bytes(),
            Ed25519PrivateKey.generate().private_bytes_raw(),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            certificate.public_bytes(Encoding.DER),
        )

    @property
    def seal_to(self) -> bytes:
        """What machines seal their evidence to."""
        return hpke.DecryptionKey(self.decryption).public

    def crypto(self) -> JoinCrypto:
        """Return the service's crypto."""
        ca_key = load_pem_private_key(self.ca_key, None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        certificate = x509.load_der_x509_certificate(self.ca_certificate)
        now = datetime.now(UTC)
        held = HeldKey(
            KEY_ID,
            hpke.DecryptionKey(self.decryption),
            now - timedelta(days=1),
            now + timedelta(days=30),
        )
        return JoinCrypto(
            trust_domain=TRUST_DOMAIN,
            decryption=[held],
            answers=Answers(JwsSigner("s-1", Ed25519PrivateKey.from_private_bytes(self.signing))),
            states=StateSealer({"c1": b"c" * 32}, "c1"),
            signer=LocalSigner(Authority(ca_key, [certificate], trust_domain=TRUST_DOMAIN)),
        )


@dataclass(frozen=True)
class Asked:
    """A request with what it asks for."""

    value: bytes
    attestor: str
    csr_sha256: bytes
    spki_sha256: bytes
    script: Script | None
    token: str | None

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the bytes."""
        return sha256(self.value).digest()


@dataclass(frozen=True)
class Told:
    """What a process was told of a request."""

    digest: bytes
    outcome: str
    node: str | None
    certificate: bytes | None


@dataclass
class Race:
    """What all processes together were told, and how often they had to try again, by why."""

    told: list[Told] = field(default_factory=list[Told])
    retried: Counter[str] = field(default_factory=Counter[str])
    halved: int = 0


def requests(rnd: Random, seal_to: bytes, count: int) -> list[Asked]:
    """Return distinct requests that want few tokens, uses and bindings."""
    found: list[Asked] = []
    machines: list[Machine] = []
    while len(found) < count:
        share = rnd.random()
        if share < 0.12 and machines:
            machine = rnd.choice(machines[-40:])  # the same CSR in other bytes, soon after
        elif share < 0.15 and machines:
            machine = Machine(seal_to, key=rnd.choice(machines).key)
        else:
            machine = Machine(seal_to)
        machines.append(machine)
        found.append(_asked(rnd, machine, len(found) // HEAT))
    return found


def _asked(rnd: Random, machine: Machine, era: int) -> Asked:
    csr, spki = sha256(machine.csr).digest(), sha256(spki_of(machine.key)).digest()
    tokens = (FEW[era % len(FEW)], PLENTY)
    if rnd.random() < 0.3:
        token = rnd.choice(tokens)
        secret = SECRET if rnd.random() < 0.92 else b"x" * 32
        return Asked(machine.request(encode(token, secret)), "join-token", csr, spki, None, token)
    attestor = "lane" if rnd.random() < 0.15 else "scripted"
    way: Way = "admit"
    if rnd.random() < 0.06:
        way = rnd.choice(("refuse", "raise", "junk"))
    script = Script(
        way=way,
        detail="pool-nul" if way == "junk" else "",
        spend=(rnd.choice(tokens),) if rnd.random() < 0.5 else (),
        uses=((f"u{era}-{rnd.randrange(10)}", None),) if rnd.random() < 0.4 else (),
        bind=f"b{era}-{rnd.randrange(8)}" if rnd.random() < 0.4 else None,
        rekey=rnd.random() < 0.3,
        hops=rnd.randrange(3),
    )
    if rnd.random() < 0.004:
        script = script.but(tenant="nobodys")  # no such tenant: the batch is halved
    if attestor == "lane":
        script = script.but(statements=("INSERT INTO race_notes VALUES ($1)",))
        if rnd.random() < 0.15:
            script = script.but(
                statements=(*script.statements, "SELECT 1/0"), swallow=rnd.random() < 0.7
            )
    value = machine.request(script.encode(), attestor=attestor)
    return Asked(value, attestor, csr, spki, script, None)


def dealt(rnd: Random, asked: Sequence[Asked], partitions: int, share: float) -> list[list[bytes]]:
    """Deal the requests to partitions; a share comes again, in the same partition or in another one."""
    dealt: list[list[bytes]] = [[] for _ in range(partitions)]
    for one in asked:
        own = rnd.randrange(partitions)
        dealt[own].append(one.value)
        if rnd.random() < share / 2:
            dealt[own].append(one.value)
        if rnd.random() < share / 2:
            dealt[rnd.randrange(partitions)].append(one.value)
    return dealt


class Counting:
    """Counts what was tried again."""

    def __init__(self, race: Race) -> None:
        """Count into the race."""
        self._race = race

    def answered(self, candidate: Candidate, answer: Answer) -> None:
        """See `Observer`."""

    def retried(self, why: str) -> None:
        """See `Observer`."""
        self._race.retried[why] += 1

    def suspected(self, *, given_up: bool) -> None:
        """Nobody ends here."""

    def halved(self) -> None:
        """See `Observer`."""
        self._race.halved += 1


def run_process(
    dsn: str, keys: KeyMaterial, number: int, partitions: list[list[bytes]], result: Path
) -> None:
    """Judge the partitions at once, each in batches; the body of a process."""
    race = Race()
    asyncio.run(_judge_all(dsn, keys, number, partitions, race))
    result.write_bytes(pickle.dumps(race))


async def _judge_all(
    dsn: str, keys: KeyMaterial, number: int, partitions: list[list[bytes]], race: Race
) -> None:
    attestors = [ScriptedToken(), Scripted("scripted"), Scripted("lane", uses_tx=True)]
    store = PostgresJoinStore(Database(dsn, application_name=APPLICATION), LIMITS)
    engine = create_join_service(
        store,
        JoinClock(),
        JoinEvents(worker=f"w{number}"),
        keys.crypto(),
        attestors,
        JoinSeams(
            policy=JoinPolicy({AttestorId(a.id): ANYTHING for a in attestors}),
            observer=Counting(race),
        ),
    )

    async def judge(partition: int, values: list[bytes]) -> None:
        rnd = Random(partition)  # noqa: S311 - sizes of batches
        at = 0
        while at < len(values):
            size = rnd.randint(8, 48)
            batch = [
                Incoming(value, "join.requests", partition, offset)
                for offset, value in enumerate(values[at : at + size], at)
            ]
            answers = await engine.judge(batch)
            race.told += [_told(i, a) for i, a in zip(batch, answers, strict=True)]
            at += size

    try:
        async with asyncio.TaskGroup() as group:
            for nth, values in enumerate(partitions):
                group.create_task(judge(number * len(partitions) + nth, values))
    finally:
        await store.close()


def _told(incoming: Incoming, answer: Answer) -> Told:
    payload = answer.value.split(b".")[1]
    said: dict[str, Any] = json.loads(
        base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
    )
    joined = said.get("joined") or {}
    certificate = base64.b64decode(joined["chain"][0]) if joined else None
    return Told(
        sha256(incoming.value or b"").digest(), answer.outcome, joined.get("nodeId"), certificate
    )


async def run_race(
    dsn: str, keys: KeyMaterial, partitions: list[list[bytes]], folder: Path, *, processes: int
) -> Race:
    """Run the partitions in processes of their own and return what all were told."""
    context = multiprocessing.get_context("spawn")
    each = len(partitions) // processes
    results = [folder / f"told-{number}" for number in range(processes)]
    running = [
        context.Process(
            target=run_process,
            args=(dsn, keys, number, partitions[number * each : (number + 1) * each], result),
        )
        for number, result in enumerate(results)
    ]
    for process in running:
        process.start()
    try:
        for process in running:
            await asyncio.to_thread(process.join)
    finally:
        for process in running:
            if process.is_alive():
                process.kill()
    assert [process.exitcode for process in running] == [0] * processes
    race = Race()
    for result in results:
        part: Race = pickle.loads(result.read_bytes())  # noqa: S301 - our own process wrote it
        race.told += part.told
        race.retried += part.retried
        race.halved += part.halved
    return race


async def kill_backends(dsn: str, rnd: Random, kills: Counter[str]) -> None:
    """End backends of the race at random, those in COMMIT first, until cancelled."""
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            rows = await connection.fetch(
                "SELECT pid, query ILIKE 'commit%' AND state = 'active' AS commits FROM pg_stat_activity"
                " WHERE application_name = $1",
                APPLICATION,
            )
            in_commit = [row["pid"] for row in rows if row["commits"]]
            if in_commit:
                kills["in commit"] += await connection.fetchval(
                    "SELECT pg_terminate_backend($1)::int", rnd.choice(in_commit)
                )
            elif rows and rnd.random() < 0.05:
                kills["anywhere"] += await connection.fetchval(
                    "SELECT pg_terminate_backend($1)::int", rnd.choice(rows)["pid"]
                )
            await asyncio.sleep(0.005)
    finally:
        await connection.close()
