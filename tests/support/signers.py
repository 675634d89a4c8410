"""A signer in this process, behind a socket of its own."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.crypto import NOW, authority
from watchword.handlers.crypto.authority import Authority
from watchword.streams.signer.server import SignerCounters, serve

AUTHORITY = authority()


@dataclass
class Running:
    """A signer in a task, which a test can kill and start again."""

    path: Path
    by: Authority = AUTHORITY
    counters: SignerCounters = field(default_factory=SignerCounters)
    mode: int = 0o600
    allowed_uids: frozenset[int] | None = None
    task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        ready = asyncio.Event()
        self.task = asyncio.create_task(
            serve(
                self.by,
                self.path,
                mode=self.mode,
                allowed_uids=self.allowed_uids,
                clock=lambda: NOW,
                counters=self.counters,
                ready=ready.set,
            )
        )
        await ready.wait()

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
