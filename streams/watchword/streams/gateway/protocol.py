"""One HTTP connection: uvicorn's HTTP/1.1 protocol with the deadlines and errors that it lacks.

uvicorn bounds the size of the headers and the life of an idle connection. It does not bound how
long headers may take, how long a reader may leave its answer, how many connections one address
opens, how small the pieces of a body may be, nor how much of it is read after the request was
answered; and it answers its own errors as text.
"""

import asyncio
import socket

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from watchword.streams.gateway import metrics
from watchword.streams.gateway.addresses import Proxies
from watchword.streams.gateway.options import Limits, Timings
from watchword.streams.gateway.problems import Problem, raw_response
from watchword.streams.gateway.quotas import Shares

_LINGER_S = 2.0
"""How long the rest of a body is read and dropped after an early answer, so that the client, which
is still writing, gets to read that answer instead of a reset (as nginx's `lingering_close`)."""

_SLICE_BYTES = 16 * 1024
"""Bytes that the parser is given at once. It bounds only headers that are not complete, and asyncio
reads 256 KiB: 40,000 headers, which hold the event loop for 0.3 s, would come complete."""

_MAX_PIECES = 1024
"""Pieces that a body may come in: 512 KiB in packets of the smallest MTU. A body in chunks of one
byte costs 30 us each, and would hold the event loop for 1.3 s with each read."""

_MALFORMED = raw_response(Problem.MALFORMED)
_BUSY = raw_response(Problem.BUSY, retry_after_s=1)


class Door:
    """Counts connections; all protocols of a listener share one."""

    def __init__(self, proxies: Proxies, limits: Limits, timings: Timings) -> None:
        """Let in as many as the limits say."""
        self.timings = timings
        self.linger_bytes = limits.request_bytes
        self._proxies = proxies
        self._one = Shares(per_address=limits.connections_per_address, total=limits.connections)
        self._proxied = Shares(per_address=limits.connections, total=limits.connections)

    def enter(self, peer: str | None) -> "Entry | None":
        """Count a connection in; None if there are too many."""
        is_proxy = self._proxies.trusts(peer)
        shares = self._proxied if is_proxy else self._one
        address = self._proxies.client(peer, ())
        over = shares.take(address)
        if over is None and self._one.held + self._proxied.held > self._one.total:
            shares.give(address)
            over = "total"
        if over is not None:
            metrics.CONNECTIONS_REFUSED.labels(over).inc()
            return None
        metrics.CONNECTIONS.inc()
        return Entry(shares, address)


class Entry:
    """A connection that was counted in."""

    def __init__(self, shares: Shares, address: str) -> None:
        """Remember where it was counted."""
        self._shares = shares
        self._address = address

    def leave(self) -> None:
        """Count it out."""
        self._shares.give(self._address)
        metrics.CONNECTIONS.dec()


class _Parser(h11.Connection):
    """h11's connection, which does not take a body in any number of pieces."""

    _pieces = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event; raises `RemoteProtocolError` as for anything that is no HTTP."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._pieces += 1
            if self._pieces > _MAX_PIECES:
                message = "too many pieces"
                raise h11.RemoteProtocolError(message)
        elif isinstance(event, h11.Request):
            self._pieces = 0
        return event


class GatewayProtocol(H11Protocol):
    """A connection of the gateway."""

    def __init__(self, config: Config, server_state: ServerState, door: Door) -> None:
        """Wait to be connected."""
        super().__init__(config, server_state, {})
        self.conn = _Parser(h11.SERVER, config.h11_max_incomplete_event_size or _SLICE_BYTES)
        self._door = door
        self._entry: Entry | None = None
        self._head: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._dropped = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Count the connection in, or close it."""
        super().connection_made(transport)
        _bound_silence(transport, self._door.timings)
        self._entry = self._door.enter(None if self.client is None else self.client[0])
        if self._entry is None:
            transport.write(_BUSY)
            transport.close()
            return
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out."""
        if self._entry is not None:
            self._entry.leave()
            self._entry = None
        for timer in (self._head, self._write, self._linger):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the connection is closing or they are the endless rest of a body."""
        if self._entry is None or self.transport.is_closing():
            return
        if self._linger is not None:
            self._dropped += len(data)
            if self._dropped > self._door.linger_bytes:
                self._cut("rest")
                return
        for at in range(0, len(data), _SLICE_BYTES):
            super().data_received(data[at : at + _SLICE_BYTES])
            if self.transport.is_closing():
                return
        self._watch_head()
        if self._linger is not None and self.conn.their_state is not h11.SEND_BODY:
            self._linger.cancel()
            self._linger = None

    def on_response_complete(self) -> None:
        """Bound what is still read of a body that nobody needs any more."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._dropped = 0
            self._linger = self.loop.call_later(_LINGER_S, self._cut, "rest")

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, if an answer can still be given."""
        del msg
        metrics.REQUESTS.labels("other", str(Problem.MALFORMED.status)).inc()
        metrics.REJECTED.labels(Problem.MALFORMED.slug).inc()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_MALFORMED)
        self.transport.close()

    def pause_writing(self) -> None:
        """Begin to lose patience: the client does not read."""
        super().pause_writing()
        if self._write is None:
            self._write = self.loop.call_later(self._door.timings.write_s, self._cut, "reading")

    def resume_writing(self) -> None:
        """Be patient again."""
        super().resume_writing()
        if self._write is not None:
            self._write.cancel()
            self._write = None

    def _watch_head(self) -> None:
        """Bound the time from a request's first byte, or from the connection, to its last header."""
        is_in_head = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if is_in_head and self._head is None:
            self._head = self.loop.call_later(self._door.timings.head_s, self._cut, "head")
        elif not is_in_head and self._head is not None:
            self._head.cancel()
            self._head = None

    def _cut(self, part: str) -> None:
        metrics.CUT.labels(part).inc()
        self.transport.abort()


def _bound_silence(transport: asyncio.Transport, timings: Timings) -> None:
    """Let the kernel end connections whose peer is gone, or takes nothing of what was written."""
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(timings.write_s * 1000)),
    ):
        if hasattr(socket, name):  # Linux has all of them
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
