"""Reading a body: bounded in bytes and in time, and all bodies together bounded in memory."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from starlette.types import Receive

from watchword.streams.gateway.problems import Problem, Rejected
from watchword.streams.gateway.quotas import Shares


class Disconnected(Exception):
    """The client has gone; there is nobody to answer."""


class Held:
    """What one request holds of the memory for bodies."""

    def __init__(self, shares: Shares, address: str) -> None:
        """Hold nothing yet."""
        self._shares = shares
        self._address = address
        self.bytes = 0

    def add(self, amount: int) -> None:
        """Hold more; raises `Rejected` (`TOO_MANY_REQUESTS`, `BUSY`) if there is no room."""
        over = self._shares.take(self._address, amount)
        if over is not None:
            problem = Problem.TOO_MANY_REQUESTS if over == "address" else Problem.BUSY
            raise Rejected(problem, retry_after_s=1)
        self.bytes += amount


@contextmanager
def held(shares: Shares, address: str) -> Generator[Held]:
    """Hold memory until the end of the block."""
    holding = Held(shares, address)
    try:
        yield holding
    finally:
        if holding.bytes:
            shares.give(address, holding.bytes)


async def read_body(receive: Receive, holding: Held, *, limit: int, deadline_s: float) -> bytes:
    """Return the whole body of an ASGI request, at most `limit` bytes.

    It counts what arrives, not what `Content-Length` says, so a chunked body without an end is
    cut off like any other.

    Raises:
        Rejected: `TOO_LARGE`, `TIMEOUT`, or there is no memory for it.
        Disconnected: the client went away.
    """
    chunks: list[bytes] = []
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                chunk: bytes = message.get("body", b"")
                if holding.bytes + len(chunk) > limit:
                    raise Rejected(Problem.TOO_LARGE)
                if chunk:
                    holding.add(len(chunk))
                    chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError:
        raise Rejected(Problem.TIMEOUT) from None
