"""The same request, sent again."""

import asyncio

import pytest

from watchword.handlers.errors import Unavailable
from watchword.streams.gateway.pending import Pending

D1, D2, D3 = (bytes([n]) * 32 for n in (1, 2, 3))


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def sent() -> None:
    """Be a sending that works."""


async def failed() -> None:
    """Be a sending that fails."""
    raise Unavailable


def pending(clock: Clock | None = None, *, capacity: int = 100) -> Pending:
    """Return one with a window of five seconds."""
    return Pending(window_s=5.0, capacity=capacity, clock=clock or Clock())


async def test_a_copy_within_the_window_need_not_be_sent() -> None:
    """An impatient client must not multiply the work of the workers."""
    found = pending()
    await found.send(D1, sent())

    assert await found.is_copy(D1)
    assert not await found.is_copy(D2)


async def test_a_copy_after_the_window_is_sent_again() -> None:
    """The request or its answer may be lost."""
    clock = Clock()
    found = pending(clock)
    await found.send(D1, sent())
    clock.now += 5.0

    assert not await found.is_copy(D1)


async def test_a_copy_after_an_answer_is_sent_again() -> None:
    """The answer may have been that the service was away, or a forgery."""
    found = pending()
    await found.send(D1, sent())
    found.answered(D1)

    assert not await found.is_copy(D1)


async def test_an_answer_that_overtakes_the_acknowledgement_counts() -> None:
    """Workers are fast; acknowledgements wait for the slowest replica."""
    found = pending()
    acknowledged = asyncio.Event()
    sending = asyncio.create_task(found.send(D1, _until(acknowledged)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    found.answered(D1)
    acknowledged.set()
    await sending

    assert not await found.is_copy(D1)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def test_a_request_that_was_not_sent_is_not_pending() -> None:
    """The client is told to send it again, and must be taken seriously."""
    found = pending()
    with pytest.raises(Unavailable):
        await found.send(D1, failed())

    assert not await found.is_copy(D1)


async def test_a_copy_of_what_is_on_its_way_shares_its_fate() -> None:
    """202 means that Kafka has it, for copies too."""
    found = pending()
    release = asyncio.Event()

    async def fails_later() -> None:
        await release.wait()
        raise Unavailable

    first = asyncio.create_task(found.send(D1, fails_later()))
    await asyncio.sleep(0)
    second = asyncio.create_task(found.is_copy(D1))
    await asyncio.sleep(0)
    release.set()

    with pytest.raises(Unavailable):
        await second
    with pytest.raises(Unavailable):
        await first


async def test_a_client_that_is_cut_off_does_not_cancel_the_sending() -> None:
    """Others may wait for the same request."""
    found = pending()
    release, is_sent = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        await release.wait()
        is_sent.set()

    client = asyncio.create_task(found.send(D1, slow()))
    await asyncio.sleep(0)
    client.cancel()
    release.set()
    await found.settle()

    assert is_sent.is_set()
    assert await found.is_copy(D1)


async def test_the_memory_of_what_was_sent_is_bounded() -> None:
    found = pending(capacity=2)
    for digest in (D1, D2, D3):
        await found.send(digest, sent())

    assert [await found.is_copy(d) for d in (D1, D2, D3)] == [False, True, True]
