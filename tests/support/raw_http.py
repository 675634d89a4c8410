"""A gateway without Kafka, and connections to it on which any bytes can be sent."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator

from tests.support.gateway import Adjust, Served, nowhere, serving

NOBODY_KNOWS = "/v1/joins/" + "0" * 64
POST = b"POST /v1/joins HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
PATIENCE_S = 10.0


class Raw:
    """A connection on which any bytes can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take its two halves."""
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes; the gateway may have closed already."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the next response."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(status.split(" ")[1]), headers, body

    async def problem(self) -> tuple[int, str]:
        """Return status and name of the problem that comes next."""
        status, headers, body = await self.response()
        assert headers["content-type"] == "application/problem+json"
        return status, json.loads(body)["type"].removeprefix("urn:watchword:problem:")

    async def is_closed(self) -> bool:
        """Tell whether the gateway has closed it, after what was still to be read."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


@contextlib.asynccontextmanager
async def connected(served: Served, *, receive_bytes: int | None = None) -> AsyncGenerator[Raw]:
    """Open a connection."""
    raw = socket.socket()
    if receive_bytes is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    raw.setblocking(False)  # noqa: FBT003 - the standard library's own
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", served.gateway.port))
    reader, writer = await asyncio.open_connection(sock=raw)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def gateway(adjust: Adjust = lambda options: options) -> AsyncGenerator[Served]:
    """Run a gateway without Kafka."""
    async with serving(nowhere(), adjust=adjust) as served:
        yield served
