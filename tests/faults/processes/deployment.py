"""A whole deployment: servers, keys, topics, processes, and machines that use it."""

import asyncio
import base64
import contextlib
import json
import random
import secrets
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.faults.judge.admissions import Trust
from tests.faults.judge.canaries import Canaries, Canary
from tests.faults.judge.documents import pinned_key_set
from tests.faults.judge.ledger import Ledger
from tests.faults.judge.refusals import Bound
from tests.faults.judge.topics import REQUESTS, RESPONSES, read_topic
from tests.faults.load.envelope import EncryptionKey
from tests.faults.load.http_sender import HttpSender
from tests.faults.load.kafka_sender import KafkaSender
from tests.faults.load.kinds import Supplies
from tests.faults.load.load import Load, LoadOptions
from tests.faults.load.tail import Tail
from tests.faults.load.tokens import Tokens
from tests.faults.processes.fleet import Fleet, Sizes
from tests.faults.processes.kafka import Kafka
from tests.faults.processes.operators import OperatorProcess
from tests.faults.processes.plug_ins import ATTESTORS, install
from tests.faults.processes.postgres import ROLE, Postgres
from tests.faults.processes.scratch import remove, scratch_folder
from tests.faults.seams.attestors import HIDDEN
from watchword.handlers.store.author_roles import create_author_role
from watchword.handlers.store.connection import Database

TRUST_DOMAIN = "faults.example"
GROUP = "watchword-verifier"
BOUND = Bound(limit=20, window_s=10.0, attestor_limit=80, exempt=5)
RELAY_LEASE_S = 3.0
KEEPER_LEASE_S = 3.0
KEEPER_PERIOD_S = 5.0
APPROVAL_RETRY_AFTER_S = 2
APPROVAL_TTL_S = 240
"""What nobody decides on expires within a round."""
_MAY_WAIT = 20_000
"""More than a flood at full size makes wait; the limit has tests of its own."""

_ROUND_PARTITIONS = {
    REQUESTS: 6,
    RESPONSES: 3,
    "node.events": 4,
    "security.join.refused": 4,
    "security.join.refused.ocsf": 1,
    "join.requests.dlq": 2,
}


@dataclass(frozen=True, slots=True)
class Floods:
    """How large floods are."""

    junk: int = 5000
    """Pieces of junk."""
    valid: int = 50
    """Joins in between, through gateways."""
    valid_every_s: float = 0.08
    slow: int = 30
    """Connections that trickle."""
    pollers: int = 500
    """Machines that wait for answers that never come."""
    agents: int = 500
    """Machines that boot at once."""
    waiters: int = 64
    """Long polls that a gateway has open: fewer than there will be."""


FULL_FLOODS = Floods(
    junk=100_000,
    valid=100,
    valid_every_s=5.0,
    slow=300,
    pollers=10_000,
    agents=10_000,
    waiters=10_000,
)
"""As the promise has them, at gateways that have as many long polls as they have if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How large a deployment is, and which servers it has."""

    kafka_nodes: int = 3
    standby: bool = True
    small_disk: bool = True
    sizes: Sizes = field(default_factory=Sizes)
    single_use: int = 500
    floods: Floods = field(default_factory=Floods)
    answer_cache_bytes: int = 256 << 20
    """What a gateway keeps of answers."""
    server_settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """PostgreSQL's, where they are not to be those of a server whose disk is filled."""
    guard_off: str | None = None


@dataclass(slots=True)
class Deployment:
    """Everything that a fault may touch and the judge may read."""

    folder: Path
    """What is kept: logs of processes, verdicts."""
    layout: Layout
    rng: random.Random
    kafka: Kafka
    postgres: Postgres
    fleet: Fleet
    load: Load
    operator: OperatorProcess
    trust: Trust
    pin: str
    """Of the signing key, as agents are given it."""
    canaries: Canaries
    pages: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    """Metrics pages and command lines as they were seen."""
    last_release: str | None = None
    """The `PYTHONPATH` of the last release, once it is unpacked."""
    background: "tuple[asyncio.Task[None], ...]" = ()
    """What has to go on for as long as there is load."""

    @property
    def ledger(self) -> Ledger:
        """What was asked."""
        return self.load.ledger

    async def look_at_pages(self) -> None:
        """Keep what processes show of themselves now."""
        for child in self.fleet.children.values():
            page = await asyncio.to_thread(self.fleet.page, child)
            self.pages.append((f"metrics of {child.name}", page))
        self.pages += self.fleet.command_lines()


@contextlib.asynccontextmanager
async def deployed(
    folder: Path, layout: Layout, rng: random.Random, options: LoadOptions
) -> AsyncGenerator[Deployment]:
    """Yield a deployment in which every process is ready; end and delete it afterwards."""
    scratch = scratch_folder()
    folder.mkdir(parents=True, exist_ok=True)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(remove, scratch)
        kafka = Kafka(scratch, nodes=layout.kafka_nodes)
        stack.push_async_callback(kafka.remove)
        postgres = Postgres(scratch, layout.server_settings)
        stack.push_async_callback(postgres.remove)
        async with asyncio.TaskGroup() as starts:
            starts.create_task(kafka.start())
            starts.create_task(postgres.start(small_disk=layout.small_disk))
        fleet = Fleet(
            folder,
            _configured(scratch, kafka, postgres, layout),
            layout.sizes,
            layout.guard_off,
            install(scratch),
        )
        await _prepare_notes(postgres)
        pin = await asyncio.to_thread(_set_up, fleet)
        await _prepare_author(postgres)
        if layout.standby:
            await postgres.add_standby()
        stack.push_async_callback(fleet.stop)
        supervising = asyncio.create_task(fleet.run())
        stack.push_async_callback(_cancelled, supervising)
        operator = await OperatorProcess.start(scratch / "dsn", folder / "operator.log")
        stack.push_async_callback(operator.close)
        tokens = await Tokens.made(operator, single=layout.single_use, few_uses=150)
        anchors = await operator.make_anchors()
        trust, encryption = await _published(kafka, pin)
        claims, marks = _claims()
        ledger = Ledger()
        supplies = Supplies(rng, encryption, tokens, anchors, claims)
        tail = Tail(kafka.bootstrap_servers, ledger)
        http = HttpSender(fleet.gateway_ports, rng) if fleet.gateway_ports else None
        sender = KafkaSender(kafka.bootstrap_servers, rng)
        load = Load(supplies, ledger, sender, http, tail, operator, options)
        canaries = Canaries([*marks, *_keys(scratch / "keys"), *_secrets(supplies, postgres)])
        stack.push_async_callback(sender.close)
        if http is not None:
            stack.push_async_callback(http.close)
        await fleet.await_ready()
        tailing = asyncio.create_task(tail.run())
        stack.push_async_callback(_cancelled, tailing)
        yield Deployment(
            folder,
            layout,
            rng,
            kafka,
            postgres,
            fleet,
            load,
            operator,
            trust,
            pin,
            canaries,
            background=(supervising, tailing),
        )


def _configured(scratch: Path, kafka: Kafka, postgres: Postgres, layout: Layout) -> dict[str, str]:
    """Write the configuration of all processes, and return the variables that lead to it."""
    dsn = scratch / "dsn"
    dsn.touch(mode=0o600)
    dsn.write_text(postgres.dsn)
    replicas = min(3, layout.kafka_nodes)
    partitions = "\n".join(f'"{name}" = {count}' for name, count in _ROUND_PARTITIONS.items())
    attestors = "\n".join(f"[attestors.{name}]" for name in ATTESTORS)
    config = scratch / "config.toml"
    config.write_text(
        f"""
[deployment]
trust_domain = "{TRUST_DOMAIN}"
cluster = "faults"
approval_retry_after_s = {APPROVAL_RETRY_AFTER_S}
approval_ttl_s = {APPROVAL_TTL_S}
waiting_per_tenant = {_MAY_WAIT}
waiting_per_site = {_MAY_WAIT}
[database]
url_file = "{dsn}"
[kafka]
bootstrap_servers = "{kafka.bootstrap_servers}"
[keys]
directory = "{scratch / "keys"}"
[signer]
socket = "{scratch / "signer.sock"}"
[relay]
lease_s = {RELAY_LEASE_S}
[keeper]
interval_s = 1.0
period_s = {KEEPER_PERIOD_S}
lease_s = {KEEPER_LEASE_S}
[refusals]
limit = {BOUND.limit}
window_s = {BOUND.window_s}
attestor_limit = {BOUND.attestor_limit}
[attestors]
enabled = [{", ".join(f'"{name}"' for name in ATTESTORS)}]
{attestors}
[gateway]
requests_per_address = 100000
waiters_per_address = 10000
waiters = {layout.floods.waiters}
answer_cache_bytes = {layout.answer_cache_bytes}
[topics]
replication_factor = {replicas}
min_insync_replicas = {max(1, replicas - 1)}
[topics.partitions]
{partitions}
"""
    )
    return {"WATCHWORD_CONFIG": str(config)}


def _set_up(fleet: Fleet) -> str:
    """Make schema, keys and topics as an operator would, and return the pin."""
    fleet.command("db", "migrate")
    fleet.command("keys", "init")
    fleet.command("topics", "apply")
    fleet.command("trust", "publish")
    return fleet.command("keys", "pin").strip()


async def current_encryption(deployment: Deployment) -> EncryptionKey:
    """Return what evidence is to be sealed to now, as agents are told."""
    _, encryption = await _published(deployment.kafka, deployment.pin)
    return encryption


async def _published(kafka: Kafka, pin: str) -> tuple[Trust, EncryptionKey]:
    """Return what agents are told, read from its topic and held against the pin."""
    documents = {
        record.key: record.value
        for record in await read_topic(kafka.bootstrap_servers, "trust.bundle")
    }
    signing, key_set = pinned_key_set(documents[b"key-set"] or b"", pin)
    bundle = (documents[b"trust-bundle"] or b"").split(b".")[1]
    authorities = json.loads(base64.urlsafe_b64decode(bundle + b"=" * (-len(bundle) % 4)))
    encryption = max(key_set["encryption"], key=lambda key: key["notBefore"])
    return (
        Trust(signing, base64.b64decode(authorities["authorities"][0]), TRUST_DOMAIN),
        EncryptionKey(encryption["kid"], base64.b64decode(encryption["public"])),
    )


def _claims() -> tuple[dict[str, object], list[Canary]]:
    """Return what machines claim, with a canary in every field."""
    marks = {
        name: f"canary-{secrets.token_hex(12)}"
        for name in ("hardwareKey", "hostname", "productUuid", "serial")
    }
    mac = f"canary{secrets.token_hex(12)}"
    claims: dict[str, object] = {**marks, "macs": [mac]}
    canaries = [Canary(f"claim {name}", mark.encode()) for name, mark in marks.items()]
    return claims, [*canaries, Canary("claim macs", mac.encode())]


async def _prepare_notes(postgres: Postgres) -> None:
    """Make the table of the attestor that brings its own SQL."""
    await postgres.run("CREATE TABLE public.notes (csr bytea NOT NULL)")
    await postgres.run(f"GRANT INSERT, SELECT ON public.notes TO {ROLE}")


async def _prepare_author(postgres: Postgres) -> None:
    """Make the role that this attestor's SQL runs with, as whoever may make roles; ours may not."""
    database = Database(postgres.superuser_dsn, application_name="faults")
    try:
        role = await create_author_role(database, "own-sql", worker=ROLE)
    finally:
        await database.close()
    await postgres.run(f"GRANT INSERT, SELECT ON public.notes TO {role}")


def _secrets(supplies: Supplies, postgres: Postgres) -> list[Canary]:
    """Return some secrets of machines (all would take long to look for), and the database's password."""
    tokens = supplies.tokens
    shown = [*tokens.large, *tokens.few, *tokens.revoked, *tokens.expired, *tokens.expecting]
    found = [Canary(f"secret of token {token.id}", token.secret) for token in shown]
    return [
        *found,
        Canary("secret of the image", supplies.anchors.image.secret),
        Canary("secret in a challenge's state", HIDDEN),
        Canary("password of the database", postgres.password.encode()),
    ]


def _keys(directory: Path) -> list[Canary]:
    """Return every private key of the deployment."""
    found: list[Canary] = []
    for path in sorted(directory.rglob("*")):
        if path.suffix == ".key":
            found.append(Canary(f"key {path.name}", bytes.fromhex(path.read_text())))
        elif path.name.endswith(".pem") and "cert" not in path.name:
            key = load_pem_private_key(path.read_bytes(), None)
            der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
            found.append(Canary(f"key {path.name}", der[-32:] if len(der) < 64 else der[36:68]))
    return found


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
