"""Revoked certificates reach the CRL, and the machines that check by it."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from cryptography import x509

from tests.support.agents import Service, Wire, bootstrapped
from tests.support.crypto import NOW
from tests.support.joins import join_bench
from tests.support.renewals import joined, renewed
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.revocations import revoked_certificates
from watchword.handlers.operators.standing import SeenNode, change_nodes
from watchword.handlers.store.connection import Database
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.revocations import refresh_crl
from watchword.streams.agent.trust import load_trust

pytestmark = pytest.mark.postgres

ADA = Actor("ada", "a test")


@pytest.fixture
async def store(database: str) -> AsyncGenerator[Database]:
    opened = Database(database, application_name="test")
    yield opened
    await opened.close()


async def test_crl_holds_what_was_revoked_and_not_what_was_renewed(
    database: str, store: Database, tmp_path: Path
) -> None:
    """A certificate that was replaced in time is no danger; one that was taken away must not pass."""
    async with join_bench(database) as bench:
        out, other, old = await joined(bench), await joined(bench), await joined(bench)
        out = await renewed(bench, out)
        await renewed(bench, other)
        await change_nodes(store, ADA, "evict", [SeenNode(UUID(node.id)) for node in (out, old)])
        await bench.fetch(
            "UPDATE node_certs SET not_after = now() - interval '25 hours' WHERE node_id = $1",
            UUID(old.id),
        )
        now, rows = await revoked_certificates(store)
        der = bench.authority.revocation_list(rows, now=now, next_update=now + timedelta(days=1))
        revoked = await bench.fetch(
            "SELECT serial FROM node_certs WHERE node_id = $1", UUID(out.id)
        )

        found = {entry.serial_number for entry in x509.load_der_x509_crl(der)}
        assert found == {int.from_bytes(row["serial"], "big") for row in revoked}
        assert len(found) == 2

        # An agent that trusts this authority takes it.
        service = Service(now=NOW)
        service.authority = bench.authority
        keystore = bootstrapped(tmp_path / "state", service)
        wire = Wire(service, certificate_revocations=der)
        assert await refresh_crl(load_trust(keystore, AgentClock()), keystore, wire)
        assert keystore.read("crl.der") == der
