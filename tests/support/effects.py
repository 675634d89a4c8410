"""What failures between a request and its answer must leave: each join once and whole, or nothing."""

from tests.support.attestors.scripted import Script
from tests.support.joins import Bench


def scripted(bench: Bench, script: Script) -> bytes:
    """Return a new machine's request."""
    return bench.machine().request(script.encode(), attestor="scripted")


async def one_effect(bench: Bench, joined: int) -> None:
    """Assert that so many joins happened, each once and whole."""
    for query in (
        "SELECT count(*) FROM nodes",
        "SELECT count(*) FROM node_certs",
        "SELECT count(*) FROM journal WHERE type = 'node.joined'",
        "SELECT count(*) FROM audit_log",
        "SELECT count(*) FROM inbox WHERE outcome = 1",
        "SELECT sum(uses_total - uses_left) FROM tokens",
    ):
        assert await bench.one(query) == joined, query
