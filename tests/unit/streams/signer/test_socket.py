"""The signer's socket: who may call, what a peer can do to the others, and where it may be."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from tests.support.crypto import order
from tests.support.signers import AUTHORITY, Running
from tests.support.waiting import until
from watchword.handlers.errors import ConfigRefused, Conflict
from watchword.streams.signer import server as server_module
from watchword.streams.signer.client import SocketSigner
from watchword.streams.signer.frames import (
    MAX_FRAME_BYTES,
    Frame,
    FrameKind,
    encode,
    encode_orders,
)
from watchword.streams.signer.server import serve


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\xff\xff\xff\xff", id="a frame without end"),
        pytest.param((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), id="one byte too many"),
        pytest.param(b"\0\0\0\4abcd", id="too short for a head"),
        pytest.param(b"\0\0\0\5abcd\x63", id="an unknown kind"),
        pytest.param(encode(Frame(1, FrameKind.CERTIFICATES, b"")), id="an answer as a call"),
        pytest.param(encode(Frame(1, FrameKind.ISSUE, b"junk")), id="a body of junk"),
        pytest.param(
            encode(Frame(1, FrameKind.ISSUE, b"\0\0\0\4\xff\xff\xff\xff")), id="endless orders"
        ),
        pytest.param(
            encode(Frame(1, FrameKind.ISSUE, encode_orders([order()]) + b"x")), id="bytes left over"
        ),
        pytest.param(
            encode(Frame(1, FrameKind.ISSUE, encode_orders([order(tenant="ä")]))), id="no ASCII"
        ),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_hung_up_on_and_harms_nobody(
    running: Running, signer: SocketSigner, sent: bytes
) -> None:
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(sent)

    assert await reader.read() == b""

    writer.close()
    assert running.counters.failures == 1
    assert len(await signer.issue([order()])) == 1


async def test_a_peer_that_stops_in_the_middle_of_a_frame_is_hung_up_on(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a few stuck peers hold all the connections."""
    monkeypatch.setattr(server_module, "FRAME_PATIENCE_S", 0.05)
    reader, writer = await asyncio.open_unix_connection(running.path)
    writer.write(b"\0\0\0\5ab")

    assert await reader.read() == b""

    writer.close()
    assert running.counters.failures == 1


async def test_a_peer_that_hangs_up_is_no_failure(running: Running) -> None:
    _, writer = await asyncio.open_unix_connection(running.path)
    await until(lambda: running.counters.connections == 1, "connected")
    writer.close()

    await until(lambda: running.counters.connections == 0, "hung up")
    assert running.counters.failures == 0


async def test_connections_are_bounded(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 1)
    signer = SocketSigner(running.path)
    await signer.issue([order()])

    reader, writer = await asyncio.open_unix_connection(running.path)

    assert await reader.read() == b""
    assert running.counters.connections_refused == 1
    writer.close()
    await signer.close()


@pytest.mark.parametrize("mode", [0o600, 0o660])
async def test_the_socket_has_the_mode_that_was_asked_for(path: Path, mode: int) -> None:
    """Whoever can connect can order certificates."""
    running = Running(path, mode=mode)
    await running.start()

    found = path.stat().st_mode  # noqa: ASYNC240 - the same

    assert stat.S_ISSOCK(found)
    assert stat.S_IMODE(found) == mode
    await running.stop()
    assert not path.exists()  # noqa: ASYNC240 - a test may wait for a disk


async def test_another_user_is_hung_up_on(path: Path) -> None:
    """The kernel says who calls; a mode can be changed by mistake."""
    running = Running(path, allowed_uids=frozenset((os.getuid() + 1,)))
    await running.start()

    reader, writer = await asyncio.open_unix_connection(path)

    assert await reader.read() == b""
    assert running.counters.connections_refused == 1
    writer.close()
    await running.stop()


async def test_an_allowed_user_is_served(path: Path) -> None:
    running = Running(path, allowed_uids=frozenset((os.getuid(),)))
    await running.start()
    signer = SocketSigner(path)

    assert len(await signer.issue([order()])) == 1

    await signer.close()
    await running.stop()


async def test_a_socket_that_a_killed_signer_left_is_taken_over(path: Path) -> None:
    """SIGKILL removes nothing; the next start must not need a hand."""
    left = socket.socket(socket.AF_UNIX)
    left.bind(os.fspath(path))
    left.close()
    running = Running(path)

    await running.start()

    await running.stop()


async def test_two_signers_do_not_share_a_socket(running: Running) -> None:
    with pytest.raises(Conflict):
        await serve(AUTHORITY, running.path)

    assert running.path.exists()


def test_a_file_is_not_removed_for_a_socket(path: Path) -> None:
    path.write_text("somebody's")

    with pytest.raises(Conflict):
        asyncio.run(serve(AUTHORITY, path))

    assert path.read_text() == "somebody's"


async def test_a_place_where_no_socket_can_be_is_named(path: Path) -> None:
    with pytest.raises(ConfigRefused, match="missing"):
        await serve(AUTHORITY, path.parent / "missing" / "signer.sock")


async def test_stopping_ends_open_connections(running: Running, signer: SocketSigner) -> None:
    """SIGTERM must not wait for workers, who never hang up by themselves."""
    await signer.issue([order()])

    await asyncio.wait_for(running.stop(), 2)

    assert running.counters.connections == 0
