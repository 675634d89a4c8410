"""What a join tells everybody else."""

import pytest

from tests.support.joins import join_bench
from watchword.schemas.events import NodeJoined

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    "kinds", [None, ["diag.ping", "disk.wipe"], []], ids=["all", "two", "none"]
)
async def test_event_has_the_bytes_of_its_model(database: str, kinds: list[str] | None) -> None:
    """The event is written without its model, for speed; consumers are promised the model."""
    async with join_bench(database) as bench:
        token = await bench.token(allowed_kinds=kinds)
        [answer] = await bench.ask(bench.machine().request(token.payload))
        value = await bench.one("SELECT value FROM journal WHERE type = 'node.joined'")

    event = NodeJoined.model_validate_json(value)
    assert event.model_dump_json(by_alias=True).encode() == value
    assert event.node_id == answer["joined"]["nodeId"]
    assert event.allowed_kinds == (None if kinds is None else tuple(kinds))
