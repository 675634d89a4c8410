"""Operators who come with a client certificate, from the command line: let in, at work, taken out."""

import asyncio
from pathlib import Path

import pytest

from tests.support.commands import Command, result
from tests.support.tls_console import tls_console

pytestmark = pytest.mark.postgres

ADAS = "email:ada@ops.example"


async def test_an_operator_is_let_in_works_at_a_distance_and_is_taken_out(
    database: str, watchword: Command, tmp_path: Path
) -> None:
    """The first operator is let in from a shell; and a laptop with a certificate needs no token."""
    async with tls_console(database, tmp_path) as tls:
        shown = tls.mail("ada@ops.example")
        file = tmp_path / "ada.pem"
        file.write_bytes(shown.pem + shown.key_pem)

        async def run(*arguments: str, code: int = 0) -> str:
            done = await asyncio.to_thread(watchword, *arguments, code=code)
            return done.stdout + done.stderr

        at_distance = ("--server", tls.url, "--server-ca-file", str(tmp_path / "server-ca.pem"))
        with_it = (*at_distance, "--client-certificate-file", str(file))
        admitted = result(await asyncio.to_thread(watchword, "operators", "admit", ADAS, "--json"))
        listed = await run("operators", "list", "--json")
        await run("nodes", "list", *with_it)
        neither = await run("nodes", "list", *at_distance, code=2)
        revoked = await run("operators", "revoke", ADAS, "--why", "left")
        await run("nodes", "list", *with_it, code=5)

        assert "secret_sha256" not in admitted
        assert admitted["role"] == "viewer"
        assert '"by": "certificate"' in listed
        assert ADAS in listed
        assert "--client-certificate-file" in neither
        assert f"{ADAS} is revoked" in revoked
