"""What one read of the socket can cost, without a socket."""

import asyncio
from collections.abc import AsyncGenerator

import pytest_asyncio
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from watchword.streams.gateway.addresses import Proxies
from watchword.streams.gateway.options import Limits, Timings
from watchword.streams.gateway.protocol import Door, GatewayProtocol

READ_BYTES = 256 * 1024
"""What asyncio reads at once."""


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        """Be open."""
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@pytest_asyncio.fixture
async def connection() -> AsyncGenerator[tuple[GatewayProtocol, Wire, list[Scope]]]:
    """Yield a connection, its wire, and the requests that got through to the application."""
    requests: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        requests.append(scope)
        await asyncio.Event().wait()

    config = Config(app, interface="asgi3", log_config=None, h11_max_incomplete_event_size=24_576)
    config.load()
    state = ServerState()
    protocol = GatewayProtocol(config, state, Door(Proxies(), Limits(), Timings()))
    wire = Wire()
    protocol.connection_made(wire)
    yield protocol, wire, requests
    for task in state.tasks:
        task.cancel()
    protocol.connection_lost(None)


async def test_headers_that_come_complete_in_one_read_are_bounded_too(
    connection: tuple[GatewayProtocol, Wire, list[Scope]],
) -> None:
    """h11 bounds only those that are not complete; 40,000 headers hold the event loop for long."""
    protocol, wire, requests = connection
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: g\r\n" + b"X:\r\n" * 40_000 + b"\r\n")
    await asyncio.sleep(0)

    assert wire.written.startswith(b"HTTP/1.1 400 ")
    assert (wire.is_closed, requests) == (True, [])


async def test_a_body_in_chunks_of_one_byte_is_cut_off_within_one_read(
    connection: tuple[GatewayProtocol, Wire, list[Scope]],
) -> None:
    """Each costs as much as a large one: 40,000 of them hold the event loop for a second."""
    protocol, wire, _ = connection
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunks = b"1\r\nx\r\n" * (READ_BYTES // 6)
    protocol.data_received(chunks)

    assert wire.written.startswith(b"HTTP/1.1 400 ")
    assert wire.is_closed
    assert len(protocol.cycle.body) <= 1024


async def test_a_body_in_few_pieces_passes(
    connection: tuple[GatewayProtocol, Wire, list[Scope]],
) -> None:
    """512 KiB in packets of the smallest size that networks have."""
    protocol, wire, requests = connection
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 524288\r\n\r\n")
    for _ in range(978):
        protocol.data_received(bytes(536))
    await asyncio.sleep(0)

    assert (wire.written, wire.is_closed, len(requests)) == (b"", False, 1)
