"""Commands to nodes from the command line: exit codes, and what is said and what is not."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Command, result
from tests.support.joins import join_bench
from tests.support.renewals import joined

pytestmark = pytest.mark.postgres


async def test_operators_send_list_and_cancel_by_exit_codes(
    database: str, watchword: Command, tmp_path: Path
) -> None:
    """A runbook decides by exit codes, and a log of it must not have what a command says."""

    async def run(*arguments: str, code: int = 0) -> dict[str, Any]:
        done = await asyncio.to_thread(watchword, *arguments, code=code)
        assert "correct-horse" not in done.stdout + done.stderr
        return result(done) if done.stdout.startswith("{") else {}

    payload = tmp_path / "payload"
    payload.write_text("the password is correct-horse")
    (tmp_path / "large").write_bytes(b"x" * 65_537)
    said = ("--why", "a test", "--who", "ada", "--json")
    async with join_bench(database) as bench:
        node = await joined(bench, allowed_kinds=["logs.collect", "diag.*"])
        to = ("commands", "send", node.id)
        sent = await run(*to, "logs.collect", "--file", str(payload), *said)
        assert (sent["state"], sent["enqueuedBy"], sent["payloadBytes"]) == ("queued", "ada", 29)
        await run(*to, "logs.collect", "--json", code=2)
        await run(*to, "wipe", *said, code=2)
        await run(*to, "logs.collect", "--file", str(tmp_path / "large"), *said, code=2)
        await run(*to, "logs.collect", "--file", str(tmp_path / "none"), *said, code=2)
        await run(*to, "disk.wipe", *said, code=5)
        await run(*to, "diag.ping", "--version", "7", *said, code=4)
        await run("commands", "send", sent["id"], "diag.ping", *said, code=3)

        listed = await run("commands", "list", "--node", node.id, "--json")
        assert [(row["kind"], row["state"]) for row in listed["items"]] == [
            ("logs.collect", "queued"),
            ("disk.wipe", "refused"),
        ]
        await run("commands", "cancel", sent["id"], "--version", "2", *said, code=4)
        cancelled = await run("commands", "cancel", sent["id"], "--version", "1", *said)
        assert cancelled["state"] == "cancelled"
        await run("commands", "cancel", sent["id"], *said, code=4)
        await run("commands", "list", "--state", "unheard", "--json", code=2)


def test_a_deployments_own_kinds_are_registered_by_its_configuration(
    environment: dict[str, str], watchword: Command
) -> None:
    """Who sends commands and who hands them out have to agree on what there is."""
    environment["WATCHWORD_DEPLOYMENT__KINDS"] = "backup.run,backup.check"
    rows = {row["kind"]: row for row in result(watchword("kinds", "list", "--json"))["items"]}

    assert rows["backup.run"]["registeredBy"] == "deployment.kinds"
    assert rows["disk.wipe"]["registeredBy"] == "watchword"
    watchword("tenants", "create", "acme")
    watchword("pools", "create", "acme", "web")
    watchword("tokens", "create", "acme", "web", "--kind", "backup.*")
    watchword("tokens", "create", "acme", "web", "--kind", "restore.*", code=2)
    environment["WATCHWORD_DEPLOYMENT__KINDS"] = "backup.*"
    watchword("kinds", "list", "--json", code=2)
