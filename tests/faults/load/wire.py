"""HTTP/1.1 byte by byte (RFC 9112): what no client library sends, and as many connections as are wanted.

Each connection may have an address of its own: on Linux all of 127.0.0.0/8 is this machine.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

_PROBLEM = "urn:watchword:problem:"
_PATIENCE_S = 60.0

CUT = "cut"
"""Instead of an answer: the connection was ended."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, as far as a machine looks at it."""

    status: int
    problem: str | None
    """The last part of the problem's type (RFC 9457)."""
    retry_after_s: int | None
    """When to come again, if it says so."""
    closes: bool
    body: bytes = field(repr=False)

    @property
    def may_return(self) -> bool:
        """Whether it says when to come again."""
        return self.retry_after_s is not None

    @property
    def name(self) -> str:
        """The problem, or else the status."""
        return self.problem or str(self.status)


class Cut(Exception):
    """The connection ended before there was a whole answer."""


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the two ends; `opened` makes them."""
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, port: int, address: str) -> Self:
        """Connect to a port of this machine from one of its addresses; raises `Cut` if that fails."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                made = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        except OSError as error:
            raise Cut from error
        return cls(*made)

    @property
    def is_open(self) -> bool:
        """Whether the other side has not ended it, as far as is known."""
        return not (self._reader.at_eof() or self._reader.exception() or self._writer.is_closing())

    async def write(self, data: bytes) -> None:
        """Send some bytes; raises `Cut`."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise Cut from error

    async def ask(self, message: bytes) -> Answer:
        """Send a message and return its answer; raises `Cut`."""
        self._writer.write(message)
        return await self.answer()

    async def answer(self) -> Answer:
        """Return the next answer; raises `Cut`."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await self._reader.readuntil(b"\r\n\r\n")
                status, fields = _read_head(head)
                body = await self._reader.readexactly(int(fields.get("content-length", "0")))
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            raise Cut from error
        return Answer(
            status,
            _problem(fields, body),
            int(fields["retry-after"]) if "retry-after" in fields else None,
            fields.get("connection") == "close",
            body,
        )

    async def ended(self) -> None:
        """Return when the other side has ended the connection; what it says meanwhile is dropped."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while await self._reader.read(4096):
                    pass
        except OSError:
            return

    def drop(self) -> None:
        """Be gone, as a machine that loses its power is."""
        self._writer.transport.abort()


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


def _problem(fields: dict[str, str], body: bytes) -> str | None:
    if fields.get("content-type") != "application/problem+json":
        return None
    return str(json.loads(body)["type"]).removeprefix(_PROBLEM)


def post(body: bytes, *, fields: Sequence[str] = (), declared: int | None = None) -> bytes:
    """Return the bytes of handing in a request; `declared` is another length than the body's."""
    head = [
        "POST /v1/joins HTTP/1.1",
        "Host: gateway",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if declared is None else declared}",
        *fields,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def poll(digest: bytes, wait_s: int) -> bytes:
    """Return the bytes of asking for an answer."""
    return f"GET /v1/joins/{digest.hex()}?wait={wait_s} HTTP/1.1\r\nHost: gateway\r\n\r\n".encode()


def address(net: int, nth: int) -> str:
    """Return one of 60,000 addresses of this machine in `127.<net>.0.0/16`."""
    return f"127.{net}.{1 + nth // 250 % 250}.{1 + nth % 250}"
