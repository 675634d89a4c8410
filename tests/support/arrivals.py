"""Machines that operators see: one that waits for them, one that has joined."""

from typing import Any

from tests.support.doorman import asks
from tests.support.joins import Bench


async def waits(bench: Bench, name: str = "m1") -> dict[str, Any]:
    """Let a machine wait; return its row."""
    await bench.ask(asks(bench.machine(), name=name))
    rows = await bench.fetch(
        "SELECT id, version FROM join_requests WHERE state = 'pending' ORDER BY id DESC"
    )
    return {"id": str(rows[0]["id"]), "version": rows[0]["version"]}


async def joins(bench: Bench, tenant: str = "acme") -> str:
    """Let a machine join; return its node's id."""
    token = await bench.token(tenant=tenant)
    [answer] = await bench.ask(bench.machine().request(token.payload))
    node: str = answer["joined"]["nodeId"]
    return node
