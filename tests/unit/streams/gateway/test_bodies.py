"""Bodies from strangers: bounded in bytes, time and memory."""

import asyncio
from collections.abc import Iterator
from itertools import repeat

import pytest
from starlette.types import Message, Receive

from watchword.streams.gateway.bodies import Disconnected, held, read_body
from watchword.streams.gateway.problems import Problem, Rejected
from watchword.streams.gateway.quotas import Shares

ROOM = Shares(per_address=10**6, total=10**6)


def sending(chunks: Iterator[bytes]) -> Receive:
    """Return an ASGI `receive` that brings chunks, then the end."""

    async def receive() -> Message:
        chunk = next(chunks, None)
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    return receive


async def read(receive: Receive, shares: Shares = ROOM, address: str = "a") -> bytes:
    """Read with a limit of 100 bytes."""
    with held(shares, address) as holding:
        return await read_body(receive, holding, limit=100, deadline_s=5.0)


async def test_a_body_in_pieces_is_read_whole() -> None:
    assert await read(sending(iter([b"a" * 50, b"", b"b" * 50]))) == b"a" * 50 + b"b" * 50


async def test_a_body_without_an_end_is_cut_off_at_the_limit() -> None:
    """`Content-Length` is a promise; a chunked body does not even promise."""
    read_so_far = 0

    def endless() -> Iterator[bytes]:
        nonlocal read_so_far
        for chunk in repeat(b"x" * 30):
            read_so_far += len(chunk)
            yield chunk

    with pytest.raises(Rejected) as rejected:
        await read(sending(endless()))

    assert rejected.value.problem is Problem.TOO_LARGE
    assert read_so_far == 120


async def test_a_body_that_stops_in_the_middle_times_out() -> None:
    """A connection that sends nothing must not hold its memory for ever."""

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    with held(ROOM, "a") as holding, pytest.raises(Rejected) as rejected:
        await read_body(receive, holding, limit=100, deadline_s=0.01)

    assert rejected.value.problem is Problem.TIMEOUT


async def test_a_client_that_goes_away_is_not_answered() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(Disconnected):
        await read(receive)


@pytest.mark.parametrize(
    ("address", "problem"),
    [("noisy", Problem.TOO_MANY_REQUESTS), ("another", Problem.BUSY)],
)
async def test_bodies_held_at_once_are_bounded_for_one_address_and_for_all(
    address: str, problem: Problem
) -> None:
    """Half-sent bodies are the cheapest way to fill somebody's memory."""
    shares = Shares(per_address=120, total=150)
    shares.take("noisy", 100)

    with pytest.raises(Rejected) as rejected:
        await read(sending(iter([b"x" * 60])), shares, address)

    assert rejected.value.problem is problem
    assert shares.held == 100


async def test_memory_is_given_back_whatever_happened() -> None:
    """A leak of a few bytes a request ends in refusing everybody."""
    shares = Shares(per_address=1000, total=1000)

    await read(sending(iter([b"x" * 60])), shares)
    with pytest.raises(Rejected):
        await read(sending(iter([b"x" * 60] * 2)), shares)

    assert shares.held == 0
