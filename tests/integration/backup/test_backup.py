"""What a backup brings back, what it does not, and how a wrong one is noticed: with PostgreSQL's own tools."""

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from tests.support.folders import CACHE, server_folder
from tests.support.joins import Bench, Machine, join_bench
from watchword.handlers.attestors.join_token.evidence import encode, parse_token
from watchword.handlers.crypto.keyfiles import create_keys, load_authority, load_worker_keys
from watchword.handlers.errors import StoreRejected
from watchword.handlers.operators import places, tokens
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.tokens import TokenOrder
from watchword.handlers.store import deployment
from watchword.handlers.store.connection import Database
from watchword.handlers.store.migrate import migrate
from watchword.handlers.store.rebuild import check
from watchword.handlers.windows import Limit
from watchword.schemas.times import parse_rfc3339
from watchword.streams.dev import postgres_files
from watchword.streams.dev.accounts import ServerAccount, server_account
from watchword.streams.dev.free_ports import LOOPBACK
from watchword.streams.dev.postgres import EmbeddedPostgres
from watchword.streams.keeper import KeeperOptions
from watchword.streams.keeper.keeper import Keeper

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(240)]

ADA = Actor("ada", "a test")


def _tool(
    account: ServerAccount | None, name: str, *arguments: str, server: EmbeddedPostgres
) -> None:
    """Run one of PostgreSQL's own programs as the server's user."""
    subprocess.run(
        [str(postgres_files.binaries(account) / name), *arguments],
        check=True,
        capture_output=True,
        env={
            "PATH": os.defpath,
            "PGHOST": LOOPBACK,
            "PGPORT": str(server.port),
            "PGUSER": "postgres",
            "PGPASSWORD": (server.data_dir / "superuser").read_text(),
            "LC_ALL": "C",
        },
        cwd="/",
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else [],
    )


def _own(account: ServerAccount | None, path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True)
    if account is not None:
        os.chown(path, account.uid, account.gid)
    return path


@pytest_asyncio.fixture
async def folder() -> AsyncGenerator[Path]:
    with server_folder("backup") as made:
        yield made


@pytest_asyncio.fixture
async def server(folder: Path) -> AsyncGenerator[EmbeddedPostgres]:
    """Yield a server of this test alone, with our schema."""
    template = CACHE / f"postgres-{postgres_files.postgres_version()}"
    async with EmbeddedPostgres(folder / "first", durable=False, template=template) as started:
        await migrate(started.dsn())
        yield started


async def _token(dsn: str) -> str:
    database = Database(dsn, application_name="test")
    try:
        await places.create_tenant(database, ADA, "acme")
        await places.create_place(database, ADA, "pool", "acme", "gpu")
        order = TokenOrder(tenant="acme", pool="gpu", uses=3, expires_in=timedelta(days=1))
        return (await tokens.create_token(database, ADA, order)).text
    finally:
        await database.close()


async def _join(bench: Bench, machine: Machine, token: str) -> str:
    parsed = parse_token(token)
    (answer,) = await bench.ask(machine.request(encode(parsed.id, parsed.secret)))
    node: str = answer["joined"]["nodeId"]
    return node


async def test_a_copy_of_the_cluster_brings_back_what_was_there_and_nothing_later(
    server: EmbeddedPostgres, folder: Path
) -> None:
    """An operator has to know what is back, and what machines and operators have to do again."""
    account = server_account()
    token = await _token(server.dsn())
    async with join_bench(server.dsn()) as bench:
        kept = bench.machine()
        kept_node = await _join(bench, kept, token)

        copy = _own(account, folder / "second" / "cluster")
        _tool(account, "pg_basebackup", f"--pgdata={copy}", "--wal-method=stream", "--checkpoint=fast",
              "--no-sync", server=server)  # fmt: skip
        shutil.copy2(server.data_dir / "superuser", folder / "second" / "superuser")

        lost = bench.machine()
        lost_node = await _join(bench, lost, token)
    database = Database(server.dsn(), application_name="test")
    await tokens.revoke_token(database, ADA, parse_token(token).id)
    await database.close()
    await server.kill()

    async with EmbeddedPostgres(folder / "second", durable=False) as restored:
        database = Database(restored.dsn(), application_name="test")
        assert (await check(database)).differences == []
        async with database.transaction() as connection:
            assert not await deployment.ids_are_behind(connection)
        await database.close()
        async with join_bench(restored.dsn()) as bench:
            nodes = [str(row["id"]) for row in await bench.fetch("SELECT id FROM nodes")]
            assert nodes == [kept_node]
            # What was spent or revoked since is whole again: this is why a backup needs its operator.
            (row,) = await bench.fetch("SELECT uses_left, revoked_at FROM tokens")
            assert (row["uses_left"], row["revoked_at"]) == (2, None)
            lost.seal_to = bench.seal_to
            assert await _join(bench, lost, token) not in {kept_node, lost_node}


async def test_a_dump_in_another_cluster_is_noticed_before_anything_is_published(
    server: EmbeddedPostgres, folder: Path
) -> None:
    """Its transaction ids begin anew: events would be passed over in silence, and refusals never counted."""
    account = server_account()
    await _token(server.dsn())
    connection = await asyncpg.connect(server.dsn())
    for _ in range(3000):
        await connection.execute("SELECT pg_current_xact_id()")
    await connection.execute(
        "UPDATE watchword.relay_cursors SET from_snapshot = pg_current_snapshot()"
    )
    await connection.close()
    dump = _own(account, folder / "dump") / "watchword.dump"
    _tool(account, "pg_dump", "--format=custom", f"--file={dump}", "postgres", server=server)

    async with EmbeddedPostgres(folder / "third", durable=False) as other:
        _tool(
            account,
            "pg_restore",
            "--single-transaction",
            "--dbname=postgres",
            str(dump),
            server=other,
        )
        database = Database(other.dsn(), application_name="test")
        async with database.transaction() as session:
            assert await deployment.ids_are_behind(session)
        keeper = Keeper(KeeperOptions(database=database, name="test", limit=Limit(60, 60)))
        with pytest.raises(StoreRejected, match="a dump was loaded"):
            await keeper.step()
        await database.close()


def test_a_copy_of_the_keys_is_the_same_deployment(tmp_path: Path) -> None:
    """Without them every agent's pin is worthless, and every machine has to be bootstrapped again."""
    now = parse_rfc3339("2026-01-02T03:04:05.678Z")
    made = create_keys(tmp_path / "keys", "fleet.example", now)
    shutil.copytree(tmp_path / "keys", tmp_path / "copy")
    copied = load_worker_keys(tmp_path / "copy")
    assert copied.pin == made.pin
    first, second = (
        load_authority(tmp_path / name, trust_domain="fleet.example") for name in ("keys", "copy")
    )
    assert first.chain == second.chain
