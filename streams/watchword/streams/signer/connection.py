"""One connection to the signer, shared by all calls of a worker."""

import asyncio
import contextlib
import itertools
import os
from pathlib import Path
from typing import Self

from watchword.streams.signer.frames import Frame, FrameBroken, FrameKind, encode, read_frame

_PATIENCE_S = 5.0
_CALLS = 2**32


class ConnectionLost(Exception):
    """The signer has hung up, or does not speak this protocol."""


class SignerConnection:
    """Sends calls, and gives each answer to the call it repeats the number of."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take an open connection; `open` makes one."""
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._numbers = itertools.count()
        self._receiving = asyncio.create_task(self._receive(reader))

    @classmethod
    async def open(cls, socket_path: Path) -> Self:
        """Return a connection; raises `OSError` when nobody listens."""
        return cls(*await asyncio.open_unix_connection(os.fspath(socket_path)))

    @property
    def is_lost(self) -> bool:
        """Whether no call can be answered any more."""
        return self._receiving.done()

    async def ask(self, kind: FrameKind, body: bytes) -> Frame:
        """Return the answer to a call.

        Raises:
            ConnectionLost: there will be none.
            OSError: the call could not be sent.
        """
        if self.is_lost:
            raise ConnectionLost
        call = next(self._numbers) % _CALLS
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[call] = answer
        try:
            self._writer.write(encode(Frame(call, kind, body)))
            await self._writer.drain()
            return await answer
        finally:
            self._waiting.pop(call, None)

    async def close(self) -> None:
        """Hang up; calls that wait end in `ConnectionLost`."""
        self._receiving.cancel()
        await asyncio.wait([self._receiving])
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while frame := await read_frame(reader, patience_s=_PATIENCE_S):
                answer = self._waiting.get(frame.call)
                # A call that ran out of time is not waiting any more.
                if answer is not None and not answer.done():
                    answer.set_result(frame)
        except (FrameBroken, OSError):
            pass  # lost either way
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionLost())
