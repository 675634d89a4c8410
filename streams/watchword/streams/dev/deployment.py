"""The deployment of `watchword dev`: servers, schema, keys, topics, and Watchword's own processes."""

import asyncio
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from watchword.handlers.crypto.keyfiles import create_keys
from watchword.handlers.crypto.worker_keys import WorkerKeys
from watchword.handlers.store.connection import Database
from watchword.handlers.store.migrate import migrate
from watchword.handlers.store.plugin_migrations import migrate_plugin
from watchword.streams.dev.children import Children
from watchword.streams.dev.data_folder import DataFolder
from watchword.streams.dev.errors import ServerFailed
from watchword.streams.dev.free_ports import LOOPBACK
from watchword.streams.dev.kafka import EmbeddedKafka, KafkaOptions
from watchword.streams.dev.postgres import EmbeddedPostgres
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.published_trust import publish_trust
from watchword.streams.settings import load
from watchword.streams.topics.admin import apply
from watchword.streams.topics.plan import Wish
from watchword.streams.wiring.attestors import packages_with_tables

TRUST_DOMAIN = "dev.watchword.internal"
WISH = Wish(replication_factor=1, min_insync_replicas=1, partitions={})

_READY_S = 90.0
_START_S = 300.0
"""Of Kafka, on whatever machine somebody tries this: a slow one is no reason to give up."""

Tell = Callable[[str, float | None], None]
"""Hears of each step, with the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What runs."""

    folder: DataFolder
    kafka: KafkaConnection
    database_url: str
    database: Database
    keys: WorkerKeys
    gateway_url: str
    console_url: str
    children: Children


@asynccontextmanager
async def deployed(
    folder: DataFolder, tell: Tell, attestors: str = ""
) -> AsyncGenerator[Deployment]:
    """Start everything, give it, and stop it in the reverse order: nothing is left behind.

    `attestors` is TOML: `[attestors]`, and a table for each that the workers have beside `join-token`.

    Raises:
        ServerFailed: something did not start, or did not end well.
        Unavailable: a server went away meanwhile.
    """
    folder.prepare()
    ports = folder.ports()
    async with AsyncExitStack() as stack:
        began = time.monotonic()
        postgres = EmbeddedPostgres(folder.postgres)
        broker = EmbeddedKafka(folder.kafka, KafkaOptions(start_s=_START_S))
        stack.push_async_callback(_stopped, "PostgreSQL", postgres.stop, tell)
        stack.push_async_callback(_stopped, "Kafka", broker.stop, tell)
        tell("Kafka and PostgreSQL start; before the first time their files are fetched", None)
        async with asyncio.TaskGroup() as group:
            group.create_task(postgres.start())
            group.create_task(broker.start())
        tell("Kafka and PostgreSQL are up", time.monotonic() - began)

        began = time.monotonic()
        kafka = KafkaConnection(broker.bootstrap_servers, client_id="watchword-dev")
        keys = create_keys(folder.keys, TRUST_DOMAIN, datetime.now(UTC))
        url = postgres.dsn()
        folder.write_private(folder.database_url, url)
        if not folder.session_key.exists():
            folder.write_private(folder.session_key, secrets.token_urlsafe(48))
        socket = folder.signer_socket()
        if socket.parent != folder.run:
            stack.callback(shutil.rmtree, socket.parent, ignore_errors=True)
        _configure(folder, broker.bootstrap_servers, ports, socket, attestors)
        async with asyncio.TaskGroup() as group:
            group.create_task(migrate(url))
            group.create_task(apply(kafka, WISH))
        await _migrate_attestors(folder, url)
        await publish_trust(kafka, keys, datetime.now(UTC))
        tell("schema, topics, keys and trust are in place", time.monotonic() - began)

        database = Database(url, application_name="watchword-dev")
        stack.push_async_callback(database.close)
        children = Children(folder)
        stack.push_async_callback(_drained, children, tell)
        began = time.monotonic()
        _start(children, ports)
        await children.ready(within_s=_READY_S)
        tell(f"{len(children.running)} processes are ready", time.monotonic() - began)
        yield Deployment(
            folder,
            kafka,
            url,
            database,
            keys,
            f"http://{LOOPBACK}:{ports['gateway']}",
            f"http://{LOOPBACK}:{ports['console']}",
            children,
        )


def _configure(
    folder: DataFolder,
    bootstrap_servers: str,
    ports: dict[str, int],
    socket: Path,
    attestors: str,
) -> None:
    folder.write_config(
        {
            "deployment": {"cluster": "dev", "trust_domain": TRUST_DOMAIN},
            "database": {"url_file": folder.database_url},
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "keys": {"directory": folder.keys},
            "signer": {"socket": socket, "health_port": ports["signer"]},
            "relay": {"health_port": ports["relay"]},
            "keeper": {"health_port": ports["keeper"]},
            "gateway": {
                "port": ports["gateway"],
                "health_port": ports["gateway-health"],
                "requests_per_address": 1000,
            },
            "console": {
                "port": ports["console"],
                "health_port": ports["console-health"],
                "session_key_file": folder.session_key,
            },
            "topics": {
                "replication_factor": WISH.replication_factor,
                "min_insync_replicas": WISH.min_insync_replicas,
            },
        },
        attestors,
    )


async def _migrate_attestors(folder: DataFolder, url: str) -> None:
    """Make the tables of the attestors that other packages bring.

    Raises:
        ConfigRefused: one cannot be loaded, or its settings are not usable.
    """
    settings = load(file=folder.config, environment={}).settings
    for attestor, package in packages_with_tables(settings):
        await migrate_plugin(url, attestor, package)


def _start(children: Children, ports: dict[str, int]) -> None:
    """Start what others need first; they drain in the reverse order, the gateway before all."""
    children.start("signer", "signer", ports["signer"], stage=0)
    children.start("keeper", "keeper", ports["keeper"], stage=1)
    children.start("relay", "relay", ports["relay"], stage=1)
    for name in ("worker-1", "worker-2"):
        variables = {
            "WATCHWORD_WORKER__NAME": name,
            "WATCHWORD_WORKER__HEALTH_PORT": str(ports[name]),
        }
        children.start(name, "worker", ports[name], stage=2, variables=variables)
    children.start("gateway", "gateway", ports["gateway-health"], stage=3)
    children.start("console", "console", ports["console-health"], stage=3)


async def _stopped(name: str, stop: Callable[[], Awaitable[None]], tell: Tell) -> None:
    began = time.monotonic()
    await stop()
    tell(f"{name} has stopped", time.monotonic() - began)


async def _drained(children: Children, tell: Tell) -> None:
    began = time.monotonic()
    bad = await children.stop()
    tell(
        "gateway, console, workers, relay, keeper and signer have drained", time.monotonic() - began
    )
    if bad:
        message = f"did not end well: {', '.join(bad)}; their logs say why"
        raise ServerFailed(message)
