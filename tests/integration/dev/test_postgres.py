"""The embedded PostgreSQL."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from tests.support.folders import server_folder
from tests.support.postgres import template_cluster
from tests.support.waiting import until
from watchword.streams.dev import postgres_files
from watchword.streams.dev.accounts import can_reach, server_account
from watchword.streams.dev.errors import ServerFailed
from watchword.streams.dev.postgres import EmbeddedPostgres
from watchword.streams.dev.server_process import children_of, is_alive

pytestmark = pytest.mark.postgres


@pytest.fixture
def folder() -> Generator[Path]:
    with server_folder("postgres-test") as made:
        yield made


@pytest_asyncio.fixture
async def server(folder: Path) -> AsyncGenerator[EmbeddedPostgres]:
    made = EmbeddedPostgres(folder / "data", template=template_cluster())
    try:
        await made.start()
        yield made
    finally:
        await made.remove()


async def _execute(server: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(server.dsn())
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _fetch(server: EmbeddedPostgres, query: str) -> object:
    connection = await asyncpg.connect(server.dsn())
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_restart_meets_its_own_data_on_the_same_port(server: EmbeddedPostgres) -> None:
    port, pid = server.port, server.pid
    await _execute(server, "CREATE TABLE kept AS SELECT 7 AS n")

    await server.restart()

    assert server.port == port
    assert server.pid != pid
    assert await _fetch(server, "SELECT n FROM kept") == 7


async def test_a_second_server_on_the_folder_meets_the_data_of_the_first(
    server: EmbeddedPostgres,
) -> None:
    await _execute(server, "CREATE TABLE kept AS SELECT 7 AS n")
    await server.stop()

    async with EmbeddedPostgres(server.data_dir) as second:
        assert await _fetch(second, "SELECT n FROM kept") == 7


async def test_kill_leaves_no_process_and_the_next_start_recovers(server: EmbeddedPostgres) -> None:
    await _execute(server, "CREATE TABLE kept AS SELECT 7 AS n")
    family = [server.pid, *children_of(server.pid)]
    assert len(family) > 1

    await server.kill()

    assert not [pid for pid in family if is_alive(pid)]
    assert not server.is_running
    await server.start()
    assert await _fetch(server, "SELECT n FROM kept") == 7


async def test_an_immediate_stop_is_recovered_from(server: EmbeddedPostgres) -> None:
    await _execute(server, "CREATE TABLE kept AS SELECT 7 AS n")
    await server.restart("immediate")
    assert await _fetch(server, "SELECT n FROM kept") == 7


async def test_a_lock_file_whose_process_is_another_program_now_is_no_obstacle(
    server: EmbeddedPostgres,
) -> None:
    cluster = (server.data_dir / "cluster").resolve()
    lock = (cluster / "postmaster.pid").read_text()
    await server.stop()
    stranger = os.getpid()
    (cluster / "postmaster.pid").write_text("\n".join([str(stranger), *lock.splitlines()[1:]]))

    await server.start()

    assert await _fetch(server, "SELECT 1") == 1


async def test_a_folder_with_a_running_server_is_refused(server: EmbeddedPostgres) -> None:
    with pytest.raises(ServerFailed, match="already"):
        await EmbeddedPostgres(server.data_dir).start()
    assert await _fetch(server, "SELECT 1") == 1


async def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    server = EmbeddedPostgres(
        folder / "data", template=template_cluster(), extra_settings={"work_mem": "plenty"}
    )
    try:
        with pytest.raises(ServerFailed, match="work_mem"):
            await server.start()
    finally:
        await server.remove()


async def test_no_mode_of_a_folder_above_changes_when_the_data_are_out_of_reach(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    above = [closed, *closed.parents]
    before = [folder.stat().st_mode for folder in above]
    server = EmbeddedPostgres(closed / "data", template=template_cluster())
    try:
        async with server:
            assert await _fetch(server, "SELECT 1") == 1
        assert [folder.stat().st_mode for folder in above] == before
    finally:
        await server.remove()


def test_binaries_out_of_reach_are_copied_to_a_folder_that_only_we_may_write(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = server_account()
    installed = Path(postgres_files.binaries(None)).parents[1]
    shutil.copytree(installed, tmp_path / installed.name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(postgres_files, "shelter", lambda _account: folder)

    found = postgres_files.binaries(account)

    if account is None:
        assert found.is_relative_to(tmp_path)
    else:
        assert found.is_relative_to(folder)
        assert (found / "postgres").stat().st_mode & 0o022 == 0
        assert can_reach(found / "postgres", account)


async def test_the_password_is_needed_and_not_among_the_arguments(server: EmbeddedPostgres) -> None:
    password = (server.data_dir / "superuser").read_text()
    assert len(password) >= 32
    assert (server.data_dir / "superuser").stat().st_mode & 0o077 == 0
    listing = subprocess.run(
        ["/bin/ps", "-o", "args=", "-p", str(server.pid)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert password not in listing.stdout
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(server.dsn().replace(password, "wrong"))


async def test_a_paused_server_answers_after_it_resumed(server: EmbeddedPostgres) -> None:
    server.pause()
    with pytest.raises(TimeoutError):
        await asyncpg.connect(server.dsn(), timeout=0.2)
    server.resume()
    assert await _fetch(server, "SELECT 1") == 1


_STARTS_AND_WAITS = """
import asyncio, sys
from pathlib import Path
from watchword.streams.dev.postgres import EmbeddedPostgres

async def main():
    server = EmbeddedPostgres(Path(sys.argv[1]), template=Path(sys.argv[2]))
    await server.start()
    print(server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
async def test_the_server_ends_when_its_parent_is_killed(folder: Path) -> None:
    command = [sys.executable, "-c", _STARTS_AND_WAITS, str(folder), str(template_cluster())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        postmaster = int(parent.stdout.readline())
        family = [postmaster, *children_of(postmaster)]
        assert is_alive(postmaster)
        parent.kill()

    await until(lambda: not [pid for pid in family if is_alive(pid)], "the server ended")
