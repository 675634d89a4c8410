"""Joins that wait, from the command line."""

import asyncio
import os
import pty
import subprocess
import sys

import pytest

from tests.support.commands import Command, result
from tests.support.doorman import Doorman, asks
from tests.support.joins import join_bench

pytestmark = pytest.mark.postgres


async def test_what_waits_is_looked_at_and_decided_once(database: str, watchword: Command) -> None:
    """The second operator must learn by the exit code that there was a first."""

    async def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        done = await asyncio.to_thread(watchword, *arguments, code=code)
        return done.stdout, done.stderr

    async with join_bench(database, attestors=[Doorman()]) as bench:
        await bench.place("acme", "web")
        machine = bench.machine()
        await bench.ask(asks(machine), asks(bench.machine(), name="m2"))

        done = await asyncio.to_thread(watchword, "requests", "list", "--json")
        first, second = result(done)["items"]
        stdout, _ = await run("requests", "show", first["id"])
        assert first["csrSha256"] in stdout
        assert "unrestricted" in stdout
        assert "claimedMood" in stdout.partition("unproven claims")[2]

        # Without --yes a script does nothing, and nothing is decided about a request that has changed.
        _, stderr = await run("requests", "approve", first["id"], code=2)
        assert "unproven: claimedMood" in stderr
        await run("requests", "approve", first["id"], "--version", "7", "--yes", code=4)
        await run("requests", "reject", second["id"], "--yes", code=2)

        await run("requests", "approve", first["id"], "--version", "1", "--yes", "--who", "ada")
        await run("requests", "approve", first["id"], "--version", "1", "--yes", code=4)
        await run("requests", "reject", second["id"], "--comment", "no such machine", "--yes")
        [joined] = await bench.ask(asks(machine))

        assert joined["outcome"] == "joined"
        done = await asyncio.to_thread(watchword, "requests", "show", second["id"], "--json")
        shown = result(done)
        assert (shown["state"], shown["comment"]) == ("rejected", "no such machine")
        assert await bench.one("SELECT decided_by FROM join_requests WHERE version = 3") == "ada"


async def test_a_person_types_how_many_they_mean(
    database: str, watchword: Command, environment: dict[str, str]
) -> None:
    """A `y` is typed without reading; a number shows that somebody saw how many machines it is."""

    def typed(answer: str, *arguments: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        try:
            os.write(ours, f"{answer}\n".encode())
            done = subprocess.run(
                [sys.executable, "-m", "watchword.streams.cli", "requests", *arguments],
                stdin=theirs,
                capture_output=True,
                text=True,
                env=environment,
                timeout=100,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)
        return done.returncode, done.stderr

    async with join_bench(database, attestors=[Doorman()]) as bench:
        await bench.place("acme", "web")
        await bench.ask(asks(bench.machine()), asks(bench.machine(), name="m2"))
        done = await asyncio.to_thread(watchword, "requests", "list", "--json")
        ids = [row["id"] for row in result(done)["items"]]

        code, said = await asyncio.to_thread(typed, "y", "approve", *ids)
        assert code == 2
        assert "Type 2 to approve 2 joins" in said
        assert await bench.one("SELECT count(*) FROM join_requests WHERE state = 'pending'") == 2

        code, _ = await asyncio.to_thread(typed, "2", "approve", *ids)
        assert code == 0
        assert await bench.one("SELECT count(*) FROM join_requests WHERE state = 'approved'") == 2
