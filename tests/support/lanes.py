"""An attestor with SQL of its own, a table for its notes, and machines that ask it."""

import contextlib
from collections.abc import AsyncGenerator

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import Bench, code, join_bench
from tests.support.scenarios import Order

NOTE = "INSERT INTO notes VALUES ($1)"
_SETUP = "CREATE TABLE notes (csr bytea NOT NULL)"


@contextlib.asynccontextmanager
async def lane_bench(database: str) -> AsyncGenerator[Bench]:
    """Give a service with a `lane` attestor, a table for its notes, and places to join; nothing may be halved."""
    order = Order()
    attestors = [Scripted("lane", uses_tx=True)]
    async with join_bench(database, attestors=attestors, observer=order) as bench:
        await prepare(bench)
        yield bench
        assert order.halvings == 0


async def prepare(bench: Bench) -> None:
    """Make the table for notes, the role that the attestor's statements run with, and places to join."""
    await bench.run(_SETUP)
    await bench.author_role("lane", "notes")
    await bench.place("acme", "web")


async def ask(bench: Bench, script: Script, *, attestor: str = "lane") -> str:
    """Ask with a new machine and return what it was told."""
    [answer] = await bench.ask(bench.machine().request(script.encode(), attestor=attestor))
    return code(answer)


async def notes(bench: Bench) -> int:
    """Return how many notes there are."""
    count: int = await bench.one("SELECT count(*) FROM notes")
    return count
