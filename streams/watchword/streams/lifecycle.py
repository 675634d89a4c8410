"""What the relay and the keeper have around their work: a way to be stopped, and a health listener."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field

from watchword.streams.health import Health, HealthListener
from watchword.streams.stop_signals import on_stop_signals


@dataclass(frozen=True, slots=True)
class HealthAddress:
    """Where `/healthz`, `/readyz` and `/metrics` are served."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How a process is watched and stopped."""

    health: Health = field(default_factory=Health)
    listen: HealthAddress | None = None
    """None: nothing is served, as in tests and under `dev`, where one listener serves all."""
    stop: asyncio.Event | None = None
    """Set it to stop the process. None: SIGTERM and SIGINT do, and a second one ends it at once."""


@asynccontextmanager
async def living(lifecycle: Lifecycle) -> AsyncGenerator[asyncio.Event]:
    """Serve the health, and yield the event that says stop.

    Raises:
        OSError: the health listener's address is taken or not ours.
    """
    stopping = lifecycle.stop or asyncio.Event()
    signals = nullcontext() if lifecycle.stop is not None else on_stop_signals(stopping)
    listener = (
        None
        if lifecycle.listen is None
        else HealthListener(lifecycle.health, lifecycle.listen.host, lifecycle.listen.port)
    )
    if listener is not None:
        await listener.start()
    try:
        with signals:
            yield stopping
    finally:
        if listener is not None:
            await listener.stop()
