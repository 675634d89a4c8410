"""Commands at a distance: the same results through a console's API as on the database, and without it."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.command_line import completed
from tests.support.commands import Command, Done, result
from tests.support.console_process import Running, running_console
from tests.support.operators import ADA
from watchword.handlers.operators.access import OperatorRole
from watchword.handlers.operators.api_tokens import ApiTokenOrder, create_api_token

pytestmark = pytest.mark.postgres


async def file_of(running: Running, folder: Path, role: OperatorRole, scope: str = "root") -> Path:
    """Write an API token to a file."""
    order = ApiTokenOrder(name=f"{role}-of-{scope}", scope=scope, role=role)
    file = folder / f"{role}-{scope}.token"
    file.write_text((await create_api_token(running.database, ADA, order)).text + "\n")
    return file


class Away:
    """Runs commands where there is no database, at a server."""

    def __init__(self, environment: dict[str, str], url: str) -> None:
        """Take what a process here would be given, and the server's address."""
        self._environment = {n: value for n, value in environment.items() if n != "DATABASE_URL"}
        self._url = url

    async def __call__(self, file: Path, *arguments: str, code: int = 0) -> Done:
        """Run one with the token of a file; it has to exit with `code`."""
        there = ("--server", self._url, "--api-token-file", str(file))
        done = await asyncio.to_thread(completed, *arguments, *there, environment=self._environment)
        assert done.returncode == code, done.stderr
        return done


async def test_commands_at_a_distance_do_what_they_do_at_the_database(
    database: str, watchword: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    """An operator's laptop has a token, and no way to PostgreSQL."""
    async with running_console(database, tmp_path) as running:
        remote = Away(environment, running.url)
        admin = await file_of(running, tmp_path, "admin")
        node = await running.join()
        first, second = [await running.wait_in_line(name) for name in ("m1", "m2")]
        await running.bench.ask(running.bench.machine().request(b"nonsense"))

        for arguments in (
            ("nodes", "list"),
            ("nodes", "show", node),
            ("requests", "list"),
            ("requests", "show", first),
            ("tokens", "list"),
            ("refusals", "list"),
            ("refusals", "top"),
            ("refusals", "export", "--format", "ecs"),
        ):
            shown = () if arguments[1] == "export" else ("--json",)
            there = await remote(admin, *arguments, *shown)
            here = await asyncio.to_thread(watchword, *arguments, *shown)
            if shown:
                assert json.loads(there.stdout) == json.loads(here.stdout), arguments
            else:
                assert there.stdout == here.stdout, arguments

        # Acts, with the same exit codes.
        await remote(admin, "requests", "approve", first, "--version", "1", "--yes")
        await remote(admin, "requests", "approve", first, "--version", "1", "--yes", code=4)
        await remote(admin, "requests", "reject", second, "--comment", "no", "--yes")
        evict = ("nodes", "evict", "--tenant", "acme", "--why", "a drill", "--yes")
        assert node in (await remote(admin, *evict, "--json")).stdout
        await remote(admin, *evict, code=3)
        made = result(await remote(admin, "tokens", "create", "acme", "web", "--json"))
        await remote(admin, "tokens", "revoke", made["id"])
        await remote(admin, "bans", "add", "ek", "ab", "--why", "stolen")
        assert "ab" in (await remote(admin, "bans", "list")).stdout
        await remote(admin, "bans", "remove", "ek", "ab", "--why", "found")
        who = await running.bench.fetch(
            "SELECT DISTINCT who FROM audit_log WHERE action LIKE 'ban.%'"
        )
        assert [row["who"] for row in who] == ["token:admin-of-root"]

        # Walls, and what is wrong.
        viewer = await file_of(running, tmp_path, "viewer", "acme")
        await remote(viewer, "nodes", "retire", node, "--why", "?", "--yes", code=5)
        await remote(viewer, "bans", "list", code=3)
        broken = tmp_path / "broken"
        broken.write_text("wo1.aaaaaaaaaaaaaaaa." + "A" * 43)
        await remote(broken, "nodes", "list", code=5)
        await remote(admin, "nodes", "evict", node, "--why", "?", "--who", "eve", "--yes", code=2)
        await remote(tmp_path / "none", "nodes", "list", code=2)

    gone = await remote(admin, "nodes", "list", code=69)
    assert "does not answer" in gone.stderr
    secret = admin.read_text().strip()
    assert secret not in json.dumps([gone.stdout, gone.stderr])


async def test_nodes_are_told_and_given_back_at_a_distance(
    database: str, watchword: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    """Whoever runs a fleet from a laptop stops a node there too, and what a command says comes through as it is."""
    async with running_console(database, tmp_path) as running:
        remote = Away(environment, running.url)
        admin = await file_of(running, tmp_path, "admin")
        viewer = await file_of(running, tmp_path, "viewer", "acme")
        node = await running.join()
        payload = tmp_path / "payload"
        payload.write_bytes(b"\x00the password is correct-horse")
        send = ("commands", "send", node, "diag.ping", "--why", "a drill")
        file = ("--file", str(payload), "--expires-in", "1h", "--json")
        told = [result(await remote(admin, *send, *file)) for _ in range(2)]
        kept = await running.bench.fetch("SELECT payload FROM node_command_payloads")
        assert [bytes(row["payload"]) for row in kept] == [payload.read_bytes()] * 2
        grant = ("reclaim", "grant", node, "--proof", "join-token:token=t", "--why", "a drill")
        granted = result(await remote(admin, *grant, "--json"))

        for arguments in (("commands", "list"), ("reclaim", "list", "--node", node)):
            there = await remote(admin, *arguments, "--json")
            here = await asyncio.to_thread(watchword, *arguments, "--json")
            assert json.loads(there.stdout) == json.loads(here.stdout), arguments
            assert json.loads(there.stdout)["items"]

        cancel = ("commands", "cancel", told[0]["id"], "--version", "1", "--why", "wrong node")
        assert result(await remote(admin, *cancel, "--json"))["state"] == "cancelled"
        await remote(admin, *cancel, code=4)
        await remote(admin, *send, "--version", "7", code=4)
        await remote(admin, "commands", "send", node, "wipe", "--why", "?", code=2)
        await remote(admin, "reclaim", "revoke", granted["id"], "--why", "found")
        await remote(admin, "reclaim", "revoke", granted["id"], "--why", "found", code=4)
        await remote(admin, "reclaim", "list", code=2)
        await remote(viewer, *send, code=5)
