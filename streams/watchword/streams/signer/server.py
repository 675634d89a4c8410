"""The body of `watchword signer`: the CA key behind a Unix socket of its own user.

Signing runs in the event loop: threads gain little, because `cryptography` holds the GIL for most
of a signature (8,000 of them took 0.24 s in one thread, 0.19 s in two on two cores). A call of 64
orders takes 3 to 5 ms, and between two calls every other connection has its turn. Only a key in a
hardware module is asked in a thread.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.profile import CertificateOrder, OrderRefused
from watchword.handlers.errors import ConfigRefused, Conflict, SignerUnavailable
from watchword.streams.signer.authorities import Authorities
from watchword.streams.signer.frames import (
    Frame,
    FrameBroken,
    FrameKind,
    decode_orders,
    encode,
    encode_certificates,
    encode_chain,
    encode_refusal,
    read_frame,
)

_log = logging.getLogger(__name__)

FRAME_PATIENCE_S = 5.0
MAX_CONNECTIONS = 64
_PEER = struct.Struct("=iII")  # struct ucred: pid, uid, gid


def utc_now() -> datetime:
    """Return the time of this host, by which the signer judges whether an order is of now."""
    return datetime.now(UTC)


@dataclass(slots=True)
class SignerCounters:
    """What a signer has done since it started; `connections` is how many are open."""

    connections: int = 0
    connections_refused: int = 0
    calls: int = 0
    certificates: int = 0
    orders_refused: int = 0
    failures: int = 0
    """Calls that ended in `UNAVAILABLE`, and connections that broke the protocol."""


async def serve(
    authority: Authority | Authorities,
    socket_path: Path,
    *,
    mode: int = 0o600,
    allowed_uids: frozenset[int] | None = None,
    clock: Callable[[], datetime] = utc_now,
    counters: SignerCounters | None = None,
    ready: Callable[[], None] | None = None,
) -> None:
    """Answer calls on a Unix socket until cancelled; then hang up and remove the socket.

    `mode` is the socket's (0600, or 0660 for a group of workers); `allowed_uids`, if given, are the
    users that may call, as the kernel tells them. `ready` is called once calls are taken.

    Raises:
        Conflict: another signer answers on that socket, or the path is no socket.
        ConfigRefused: no socket can be made there.
    """
    if isinstance(authority, Authority):
        authority = Authorities((authority,))
    server = _Server(authority, clock, allowed_uids, counters or SignerCounters())
    # A connection knows its chain: whoever calls again asks for it again.
    authority.on_exchange = server.drop_connections
    with _listening(socket_path, mode) as listener:
        acceptor = await asyncio.start_unix_server(server.converse, sock=listener)
        try:
            if ready is not None:
                ready()
            await asyncio.get_running_loop().create_future()
        finally:
            acceptor.close()
            await server.hang_up()


class _Server:
    """Answers frames, and knows its open connections."""

    def __init__(
        self,
        authority: Authorities,
        clock: Callable[[], datetime],
        allowed_uids: frozenset[int] | None,
        counters: SignerCounters,
    ) -> None:
        self._authority = authority
        self._clock = clock
        self._allowed_uids = allowed_uids
        self._counters = counters
        self._tasks: set[asyncio.Task[None]] = set()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until its end."""
        task = asyncio.current_task()
        counters = self._counters
        if task is None or not self._may_call(writer) or len(self._tasks) >= MAX_CONNECTIONS:
            counters.connections_refused += 1
            writer.close()
            return
        self._tasks.add(task)
        counters.connections += 1
        try:
            while frame := await read_frame(reader, patience_s=FRAME_PATIENCE_S):
                writer.write(encode(await self._answer(frame)))
                await writer.drain()
                # A peer that keeps our buffer full must not keep the others waiting.
                await asyncio.sleep(0)
        except FrameBroken:
            counters.failures += 1
            _log.warning("signer connection broke the protocol")
        except ConnectionError:
            pass  # the worker is gone; its next incarnation asks again
        except asyncio.CancelledError:
            # Only we cancel, to hang up, and asyncio's own callback would print it as an error.
            pass
        finally:
            self._tasks.discard(task)
            counters.connections -= 1
            writer.close()

    def drop_connections(self) -> None:
        """Close every connection: a call that has no answer yet is sent again on another one."""
        for task in self._tasks:
            task.cancel()

    async def hang_up(self) -> None:
        """Close every connection and wait until that is done."""
        tasks = list(self._tasks)
        self.drop_connections()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, frame: Frame) -> Frame:
        """Return the answer to a call; raises `FrameBroken` if it is none."""
        self._counters.calls += 1
        match frame.kind:
            case FrameKind.CHAIN if (problem := self._authority.unknown()) is not None:
                return Frame(frame.call, FrameKind.UNAVAILABLE, problem.encode())
            case FrameKind.CHAIN:
                return Frame(frame.call, FrameKind.AUTHORITIES, encode_chain(self._authority.chain))
            case FrameKind.ISSUE:
                return Frame(frame.call, *await self._issue(decode_orders(frame.body)))
            case _:
                raise FrameBroken

    async def _issue(self, orders: list[CertificateOrder]) -> tuple[FrameKind, bytes]:
        counters = self._counters
        try:
            issued = await self._authority.issue(orders, now=self._clock())
        except OrderRefused as error:
            counters.orders_refused += 1
            _log.warning("signer refused an order", extra={"problem": error.problem})
            return FrameKind.REFUSED, encode_refusal(error.index, error.problem)
        except SignerUnavailable as error:
            counters.failures += 1
            return FrameKind.UNAVAILABLE, str(error).encode()
        except Exception:  # noqa: BLE001 - of whatever holds the key; it ends in no certificate
            counters.failures += 1
            _log.exception("signer failed")
            return FrameKind.UNAVAILABLE, b"the signer failed"
        counters.certificates += len(issued)
        # Whatever becomes of the workers and their database, here stands what was signed.
        _log.info(
            "certificates signed",
            extra={
                "certificates": [
                    f"{certificate.serial.hex()} {order.tenant}/{order.node_id}"
                    for order, certificate in zip(orders, issued, strict=True)
                ]
            },
        )
        return FrameKind.CERTIFICATES, encode_certificates(issued)

    def _may_call(self, writer: asyncio.StreamWriter) -> bool:
        """Tell whether the kernel says that the peer is one of the allowed users (unix(7))."""
        if self._allowed_uids is None:
            return True
        peer = writer.get_extra_info("socket")
        _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        return uid in self._allowed_uids


@contextlib.contextmanager
def _listening(path: Path, mode: int) -> Generator[socket.socket]:
    """Yield a bound Unix socket of this mode, and remove it afterwards."""
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Never open to more than `mode`, not even for a moment: no call of ours runs in between.
        mask = os.umask(0o777 & ~mode)
        try:
            listener.bind(os.fspath(path))
        except OSError as error:
            raise ConfigRefused([f"{path}: {error.strerror or 'cannot be bound'}"]) from None
        finally:
            os.umask(mask)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
    finally:
        listener.close()


def _remove_stale(path: Path) -> None:
    """Remove a socket that a killed signer left behind; raise `Conflict` for anything else."""
    try:
        is_socket = stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        message = f"{path} is no socket"
        raise Conflict(message)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    message = f"another signer answers on {path}"
    raise Conflict(message)
