"""Typed reads: many verifiers, one query."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from watchword.handlers.errors import StoreUnavailable
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.ports import Reads
from watchword.handlers.join.reading import Bindings, Nodes, Tokens
from watchword.handlers.rows import Pair
from watchword.schemas.ids import NodeId

OWNER = NodeId(UUID(int=1))


class Source:
    """Counts queries; `gate` holds them up, `error` fails them."""

    def __init__(self) -> None:
        """Let everything through."""
        self.asked: list[list[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def bindings(self, pairs: Sequence[Pair]) -> Mapping[Pair, UUID]:
        self.asked.append(list(pairs))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {pair: OWNER for pair in pairs if pair[1][0] == 0}

    async def tokens(self, ids: Sequence[str]) -> Mapping[str, Any]:
        self.asked.append(list(ids))
        return {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - other reads, which nobody asks for
        """Stand for every other read."""
        return None


def loader_of(source: Source) -> Loader:
    return Loader(cast("Reads", source))


def subject(first: int, number: int = 0) -> bytes:
    return bytes((first, number)) + bytes(30)


async def test_reads_that_wait_together_go_out_together() -> None:
    """Sixty verifiers must not make sixty round trips."""
    source = Source()
    loader = loader_of(source)
    reads: set[tuple[str, object]] = set()
    bindings = Bindings(loader, reads, "acme")
    found = await asyncio.gather(*[bindings.get(subject(n % 2, n)) for n in range(60)])
    assert found == [OWNER, None] * 30
    assert len(source.asked) == 1
    assert len(reads) == 60
    # Known now, also what is not there.
    assert await bindings.get(subject(1, 1)) is None
    assert len(source.asked) == 1
    await loader.close()


async def test_one_key_is_asked_for_once() -> None:
    source = Source()
    loader = loader_of(source)
    bindings = Bindings(loader, set(), "acme")
    await asyncio.gather(*[bindings.get(subject(0)) for _ in range(60)])
    assert source.asked == [[("acme", subject(0))]]
    await loader.close()


async def test_verifier_that_runs_out_of_time_cancels_nobody_elses_read() -> None:
    source = Source()
    source.gate.clear()
    loader = loader_of(source)
    bindings = Bindings(loader, set(), "acme")
    late = asyncio.create_task(bindings.get(subject(0)))
    other = asyncio.create_task(bindings.get(subject(0)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late.cancel()
    source.gate.set()
    assert await other == OWNER
    await loader.close()


async def test_failed_read_is_remembered_also_if_it_was_caught() -> None:
    """What a verifier makes of it is no verdict: the attempt looks here."""
    source = Source()
    source.error = StoreUnavailable()
    loader = loader_of(source)
    bindings = Bindings(loader, set(), "acme")
    with pytest.raises(StoreUnavailable):
        await bindings.get(subject(0))
    assert loader.failure is source.error
    await loader.close()


async def test_nobody_reads_after_the_end() -> None:
    """The connection is in a transaction by then; and nobody waits for what will not come."""
    source = Source()
    source.gate.clear()
    loader = loader_of(source)
    bindings = Bindings(loader, set(), "acme")
    running = asyncio.create_task(bindings.get(subject(0)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting = asyncio.create_task(bindings.get(subject(1)))
    await asyncio.sleep(0)
    await loader.close()
    found = await asyncio.gather(running, waiting, return_exceptions=True)
    assert all(isinstance(error, asyncio.CancelledError | RuntimeError) for error in found)
    with pytest.raises(RuntimeError):
        await bindings.get(subject(2))
    assert len(source.asked) == 1


@pytest.mark.parametrize(
    "key", ["", "short", "A" * 16, "a" * 15 + "\0", "a" * 15 + "\ud800", "a" * 17]
)
async def test_text_that_is_no_token_id_is_not_asked_for(key: str) -> None:
    """One NUL would fail the query for all."""
    source = Source()
    loader = loader_of(source)
    assert await Tokens(loader, set()).get(key) is None
    assert source.asked == []


@pytest.mark.parametrize("key", [b"", b"s" * 31, b"s" * 33, "s" * 32, None, 5])
async def test_what_is_no_subject_is_the_authors_bug(key: Any) -> None:  # noqa: ANN401 - junk
    source = Source()
    loader = loader_of(source)
    with pytest.raises((ValueError, TypeError)):
        await Bindings(loader, set(), "acme").get(key)
    with pytest.raises((ValueError, TypeError)):
        await Nodes(loader, set(), {}).get(key)
    assert source.asked == []
