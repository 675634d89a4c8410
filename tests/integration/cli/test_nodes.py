"""A node's life from the command line: exit codes, confirmations, and what is said."""

import asyncio
import os
import pty
import subprocess
import sys

import pytest

from tests.support.commands import Command, result
from tests.support.joins import join_bench
from tests.support.renewals import joined, types

pytestmark = pytest.mark.postgres


async def test_operators_put_nodes_out_ban_them_and_give_them_back(
    database: str, watchword: Command
) -> None:
    """What a script does by exit code, an operator's runbook does by the same commands."""

    async def run(*arguments: str, code: int = 0) -> dict[str, object]:
        done = await asyncio.to_thread(watchword, *arguments, code=code)
        found: dict[str, object] = result(done) if done.stdout.startswith("{") else {}
        return found

    said = ("--yes", "--why", "a test", "--json")
    async with join_bench(database) as bench:
        first, second, third = [await joined(bench) for _ in range(3)]
        await run("nodes", "evict", first.id, "--yes", code=2)
        await run("nodes", "evict", first.id, "--version", "7", *said, code=4)
        await run("nodes", "evict", first.id, "--version", "1", *said)
        await run("nodes", "evict", first.id, *said, code=4)
        await run("nodes", "evict", "0190163d-8694-739b-aea5-966c26f8ad91", *said, code=3)
        await run("nodes", "retire", "--tenant", "acme", first.id, *said, code=2)

        await run("nodes", "ban", second.id, *said)
        listed = await run("bans", "list", "--json")
        assert {item["kind"] for item in listed["items"]} == {"spki", "certificate"}  # type: ignore[attr-defined]  # JSON
        await run("nodes", "unban", second.id, *said)
        await run("bans", "add", "ek", "e1", "--why", "stolen", "--json")
        await run("bans", "add", "ek", "e1", "--why", "stolen", "--json", code=4)
        await run("bans", "remove", "ek", "e1", "--why", "found", "--json")
        await run("bans", "remove", "ek", "e1", "--why", "found", "--json", code=3)

        granted = await run(
            "reclaim", "grant", third.id, "--proof", "tpm:ek=e1", "--why", "new board", "--json"
        )
        await run("reclaim", "grant", third.id, "--proof", "tpm", "--why", "x", "--json", code=2)
        await run("reclaim", "list", "--node", third.id, "--json")
        await run("reclaim", "revoke", str(granted["id"]), "--why", "not yet")
        await run("reclaim", "revoke", str(granted["id"]), "--why", "not yet", code=4)

        await run("nodes", "retire", "--pool", "web", "--state", "adopting", *said)
        await run("nodes", "delete", "--pool", "web", "--state", "retired", *said)
        states = await bench.fetch("SELECT state FROM nodes ORDER BY id")
        assert [row[0] for row in states] == ["evicted", "evicted", "deleted"]
        revoked = await asyncio.to_thread(watchword, "crl", "show", "--json")
        assert len(result(revoked)["items"]) == 3
        assert {
            "node.evicted",
            "node.banned",
            "node.unbanned",
            "node.retired",
            "node.deleted",
            "node.reclaim.granted",
            "node.certificate.revoked",
        } <= set(await types(bench))


async def test_a_person_types_how_many_nodes_they_mean(
    database: str, environment: dict[str, str]
) -> None:
    """A filter that finds more than was thought is noticed when the number has to be typed."""

    def typed(answer: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        command = ["nodes", "retire", "--tenant", "acme", "--why", "sold"]
        done = subprocess.run(
            [sys.executable, "-m", "watchword.streams.cli", *command],
            capture_output=True, text=True, env=environment, timeout=100, check=False, stdin=theirs,
        )  # fmt: skip
        os.close(ours)
        os.close(theirs)
        return done.returncode, done.stderr

    async with join_bench(database) as bench:
        for _ in range(3):
            await joined(bench)
        assert (await asyncio.to_thread(typed, "y"))[0] == 2
        assert await bench.one("SELECT count(*) FROM nodes WHERE state = 'retired'") == 0
        code, stderr = await asyncio.to_thread(typed, "3")
        assert code == 0, stderr
        assert "Type 3 to retire 3 nodes" in stderr
        assert await bench.one("SELECT count(*) FROM nodes WHERE state = 'retired'") == 3
