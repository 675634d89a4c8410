"""A whole Watchword for a benchmark: durable servers, and our processes through the command line."""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx

from tests.support.folders import ROOT, server_folder
from watchword.handlers.crypto.keyfiles import load_worker_keys
from watchword.streams.dev.free_ports import free_port
from watchword.streams.dev.kafka import EmbeddedKafka, KafkaOptions
from watchword.streams.dev.postgres import EmbeddedPostgres
from watchword.streams.simulator.fleet import SealTo, Token

TENANT, POOL = "acme", "web"
_TRUST_DOMAIN = "fleet.example"
_SOURCES = tuple(ROOT / name for name in ("schemas", "handlers", "streams"))
"""This checkout's, whatever is installed."""
_READY_S, _STOP_S = 300.0, 20.0

_SESSIONS = """
SELECT pid, application_name AS name FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'watchword-%'
"""


class Broken(Exception):
    """A process of the deployment ended, or was not ready in time."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What machines and observers know of the deployment."""

    seal_to: SealTo
    signing_public: bytes
    ca: bytes


@dataclass(frozen=True, slots=True)
class Servers:
    """One Kafka broker and one PostgreSQL, both durable, and the deployment's keys and topics."""

    folder: Path
    postgres: EmbeddedPostgres
    kafka: EmbeddedKafka
    keys: Keys

    def environment(self, database: str) -> dict[str, str]:
        """Return the variables of a process of ours."""
        return {
            "PATH": os.defpath,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *_SOURCES))),
            "WATCHWORD_CONFIG": str(self.folder / "watchword.toml"),
            "DATABASE_URL": self.postgres.dsn(database),
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
        }

    async def command(self, *arguments: str, more: Mapping[str, str] | None = None) -> None:
        """Run a command of ours that needs no deployment's database; raises `Broken` if it fails."""
        await _command({**self.environment("postgres"), **(more or {})}, *arguments)

    async def query(self, statement: str, *, database: str = "postgres") -> list[asyncpg.Record]:
        """Return the rows of a query."""
        connection = await asyncpg.connect(
            self.postgres.dsn(database), server_settings={"search_path": "watchword"}
        )
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def servers() -> AsyncGenerator[Servers]:
    """Start the servers on fresh folders, and make keys and topics; remove everything afterwards."""
    with server_folder("bench") as folder:
        postgres = EmbeddedPostgres(folder / "postgres", durable=True)
        kafka = EmbeddedKafka(folder / "kafka", KafkaOptions(start_s=300.0))
        try:
            await asyncio.gather(postgres.start(), kafka.start())
            (folder / "watchword.toml").write_text(_configuration(folder), encoding="utf-8")
            bare = Servers(folder, postgres, kafka, Keys(SealTo("", b""), b"", b""))
            await _command(bare.environment("postgres"), "keys", "init")
            await _command(bare.environment("postgres"), "topics", "apply")
            yield Servers(folder, postgres, kafka, _keys(folder / "keys"))
        finally:
            await kafka.remove()
            await postgres.remove()


class Deployment:
    """Our processes, on a database of their own."""

    def __init__(self, host: Servers, database: str) -> None:
        """Start nothing yet."""
        self.servers = host
        self.database = database
        self._processes: dict[str, Process] = {}

    async def start(
        self, name: str, *, profile: Path | None = None, more: Mapping[str, str] | None = None
    ) -> int:
        """Start `signer`, `relay`, `keeper`, or a worker (`worker`, or `worker-2` …); return its id.

        Returns when it is ready. With `profile` the process runs under cProfile; `more` are further variables.

        Raises:
            Broken: it ended, or is not ready in time.
        """
        command, port = name.partition("-")[0], free_port()
        variables = {
            **self.servers.environment(self.database),
            "WATCHWORD_WORKER__NAME": name,
            f"WATCHWORD_{command.upper()}__HEALTH_PORT": str(port),
            **(more or {}),
        }
        profiler = [] if profile is None else ["-m", "tests.benchmarks.profiled", str(profile)]
        program = profiler or [str(Path(sys.executable).parent / "watchword")]
        with self._log(name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *([sys.executable] if profiler else []),
                *program,
                command,
                cwd=ROOT,
                env=variables,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes[name] = process
        await self._until_ready(name, port)
        return process.pid

    def pid(self, name: str) -> int:
        """Return the id of a running process."""
        return self._processes[name].pid

    def pids(self) -> dict[str, int]:
        """Return the ids of everything that runs by name: ours, `postgres` and `kafka`."""
        ours = {name: process.pid for name, process in self._processes.items()}
        return ours | {"postgres": self.servers.postgres.pid, "kafka": self.servers.kafka.pid}

    async def sessions(self) -> dict[int, str]:
        """Return whose PostgreSQL's processes for us are (`worker`, `relay`), by process id."""
        rows = await self.servers.query(_SESSIONS, database=self.database)
        return {row["pid"]: row["name"].removeprefix("watchword-").split()[0] for row in rows}

    def check(self) -> None:
        """Raise `Broken` if a process has ended."""
        for name, process in self._processes.items():
            if process.returncode is not None:
                message = f"{name} ended with status {process.returncode}:\n{self._tail(name)}"
                raise Broken(message)

    async def stop(self, name: str) -> None:
        """Stop a process by SIGTERM and wait for its end."""
        process = self._processes.pop(name)
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def kill(self, name: str) -> None:
        """Kill a process by SIGKILL, as a machine that fails would."""
        process = self._processes.pop(name)
        process.kill()
        await process.wait()

    async def stop_all(self) -> None:
        """Stop everything, the last started first."""
        for name in reversed(list(self._processes)):
            await self.stop(name)

    async def add_tokens(self, tokens: list[Token], *, uses: int) -> None:
        """Put a tenant, a pool and tokens into the database."""
        connection = await asyncpg.connect(
            self.servers.postgres.dsn(self.database), server_settings={"search_path": "watchword"}
        )
        try:
            await connection.execute("INSERT INTO tenants (id) VALUES ($1)", TENANT)
            await connection.execute("INSERT INTO pools (tenant, id) VALUES ($1, $2)", TENANT, POOL)
            await connection.copy_records_to_table(
                "tokens",
                records=[
                    (token.id, token.secret_sha256, TENANT, POOL, "node", uses, uses, "benchmark")
                    for token in tokens
                ],
                columns=[
                    "id",
                    "secret_sha256",
                    "tenant",
                    "pool",
                    "role",
                    "uses_total",
                    "uses_left",
                    "created_by",
                ],
            )
            # Only what was loaded: over tables known to be empty PostgreSQL plans as no deployment sees it.
            await connection.execute("ANALYZE tokens")
        finally:
            await connection.close()

    async def _until_ready(self, name: str, port: int) -> None:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False
        ) as client:
            try:
                async with asyncio.timeout(_READY_S):
                    while True:
                        self.check()
                        with contextlib.suppress(httpx.HTTPError):
                            if (await client.get("/readyz")).status_code == httpx.codes.OK:
                                return
                        await asyncio.sleep(0.02)
            except TimeoutError:
                message = f"{name} is not ready:\n{self._tail(name)}"
                raise Broken(message) from None

    def _log(self, name: str) -> Path:
        return self.servers.folder / f"{self.database}-{name}.log"

    def _tail(self, name: str) -> str:
        return self._log(name).read_text(encoding="utf-8", errors="replace")[-4000:]


@contextlib.asynccontextmanager
async def deployment(host: Servers) -> AsyncGenerator[Deployment]:
    """Give a deployment on a fresh, migrated database; stop it and drop the database afterwards."""
    name = f"bench_{secrets.token_hex(4)}"
    await host.query(f'CREATE DATABASE "{name}"')
    try:
        await _command(host.environment(name), "db", "migrate")
        made = Deployment(host, name)
        try:
            yield made
        finally:
            await made.stop_all()
    finally:
        await host.query(f'DROP DATABASE "{name}" WITH (FORCE)')


async def _command(variables: Mapping[str, str], *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "watchword"),
        *arguments,
        cwd=ROOT,
        env=dict(variables),
        stdin=DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        message = f"watchword {' '.join(arguments)}: {output.decode(errors='replace')}"
        raise Broken(message)


def _configuration(folder: Path) -> str:
    return f"""\
[deployment]
trust_domain = "{_TRUST_DOMAIN}"

[keys]
directory = "{folder / "keys"}"

[signer]
socket = "{folder / "signer.sock"}"

[topics]
replication_factor = 1
min_insync_replicas = 1
"""


def _keys(directory: Path) -> Keys:
    keys = load_worker_keys(directory)
    held = keys.decryption[0]
    return Keys(SealTo(held.kid, held.key.public), keys.signing.public, keys.ca_certificates[0])
