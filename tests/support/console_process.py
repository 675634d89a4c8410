"""A console as a real process, over a database where there is something to see."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.certificates import name_of, signed
from tests.support.doorman import Doorman, asks
from tests.support.joins import Bench, join_bench
from tests.support.operators import ADA
from tests.support.waiting import until_true
from watchword.handlers.attestor import Subject
from watchword.handlers.operators import bans, reclaims, standing
from watchword.handlers.operators.access import OperatorRole
from watchword.handlers.operators.commands import CommandOrder, cancel_command, send_command
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.handlers.operators.sessions import create_link
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.store.connection import Database
from watchword.schemas.requests import Claims
from watchword.streams.dev.free_ports import free_port

HOSTILE = "<script>document.title='owned'</script>"
OWN_KIND = "backup.run"
"""A kind of commands that only this deployment has."""


@dataclass(frozen=True, slots=True)
class Running:
    """A console that runs, its database, and a fleet that asks."""

    url: str
    process: "subprocess.Popen[bytes]"
    database: Database
    bench: Bench
    dsn: str

    async def link(
        self, role: OperatorRole = "admin", scope: str = "root", who: str = "ada"
    ) -> str:
        """Return an address that lets somebody in once."""
        secret = await create_link(self.database, ADA, who=who, scope=scope, role=role)
        return f"{self.url}/sign-in?link={secret}"

    async def wait_in_line(self, name: str, claims: Claims | None = None) -> str:
        """Let a machine wait for an operator; return the id of its request."""
        machine = self.bench.machine()
        request = machine.request(
            f"web/{name}".encode(), attestor="doorman", claims=claims or Claims()
        )
        await self.bench.ask(request)
        return str(await self.bench.one("SELECT id FROM join_requests ORDER BY id DESC LIMIT 1"))

    async def join(self) -> str:
        """Let a machine join; return its node."""
        token = await self.bench.token(site="berlin")
        [answer] = await self.bench.ask(self.bench.machine().request(token.payload))
        node: str = answer["joined"]["nodeId"]
        return node


@asynccontextmanager
async def running_console(dsn: str, folder: Path) -> AsyncGenerator[Running]:
    """Start `watchword console` and wait until it is ready; at the end it has to drain and exit with 0."""
    port, health = free_port(), free_port()
    key = folder / "session.key"
    key.write_bytes(os.urandom(32))
    (folder / "keys").mkdir()
    (folder / "keys" / "ca.cert.pem").write_bytes(_ca_that_ends_soon())
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("WATCHWORD_", "PG"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "watchword.streams.cli", "console"],
        env=environment
        | {
            "DATABASE_URL": dsn,
            "WATCHWORD_DEPLOYMENT__KINDS": OWN_KIND,
            "WATCHWORD_CONSOLE__PORT": str(port),
            "WATCHWORD_CONSOLE__HEALTH_PORT": str(health),
            "WATCHWORD_CONSOLE__SESSION_KEY_FILE": str(key),
            "WATCHWORD_KEYS__DIRECTORY": str(folder / "keys"),
            "HOME": str(folder),
        },
    )
    database = Database(dsn, application_name="watchword-test")
    try:
        await until_true(lambda: _is_ready(process, health), "the console is ready", within_s=60)
        async with join_bench(dsn, attestors=[Doorman()]) as bench:
            await bench.place("acme", "web", "berlin")
            yield Running(f"http://127.0.0.1:{port}", process, database, bench, dsn)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) == 0
    finally:
        process.kill()
        process.wait()
        await database.close()


async def furnish(running: Running) -> dict[str, str]:
    """Put something on every page; return ids by what they are."""
    bench, database = running.bench, running.database
    nodes = [await running.join() for _ in range(6)]
    await standing.change_nodes(database, ADA, "evict", [SeenNode(_id(nodes[1]))])
    await standing.change_nodes(database, ADA, "retire", [SeenNode(_id(nodes[2]))])
    await bans.ban_nodes(database, ADA, [SeenNode(_id(nodes[3]))])
    order = ReclaimOrder(node=_id(nodes[0]), attestor="tpm", subject=Subject("ek", "ab" * 32))
    await reclaims.grant_reclaim(database, ADA, order)
    for _ in range(4):
        claims = Claims(hardware_key="urn:bc:tpm-ak:" + "c" * 64)
        await bench.ask(bench.machine().request(b"nonsense", claims=claims))
    await bench.ask(asks(bench.machine(), pool="web", name="rack-7-slot-2"))
    hostile = await running.wait_in_line(
        "rack-7-slot-3", Claims(serial=HOSTILE, product_uuid="4c4c4544-0042-3510-8051-b4c04f564d32")
    )
    await bench.token(uses=25, site="berlin")
    refusal = await bench.one("SELECT id FROM refusals ORDER BY id LIMIT 1")
    command, _, stopped = [
        await send_command(database, ADA, CommandOrder(seen=SeenNode(_id(nodes[0])), kind=kind))
        for kind in ("logs.collect", "diag.ping", "deploy.image")
    ]
    await cancel_command(database, ADA, stopped.id)
    return {
        "node": nodes[0],
        "hostile": hostile,
        "refusal": str(refusal),
        "command": str(command.id),
    }


def _ca_that_ends_soon() -> bytes:
    name, ca_key = (
        name_of("Watchword fleet.example"),
        ec.generate_private_key(ec.SECP256R1()),
    )
    certificate = signed(name, ca_key, name, ca_key, ends=timedelta(days=12, hours=3))
    return certificate.public_bytes(Encoding.PEM)


def _id(text: str) -> UUID:
    return UUID(text)


async def _is_ready(process: "subprocess.Popen[bytes]", port: int) -> bool:
    assert process.poll() is None, "the console has ended"
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{port}/readyz")
    except httpx.HTTPError:
        return False
    return answer.is_success
