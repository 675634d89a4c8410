"""What the relay and the keeper have around their work: a way to be stopped, and a health listener."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from watchword.streams.health import Health, HealthListener

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
    """Set it to stop the process. None: SIGTERM and SIGINT do."""


@asynccontextmanager
async def living(lifecycle: Lifecycle) -> AsyncGenerator[asyncio.Event]:
    """Serve the health, and yield the event that says stop.

    Raises:
        OSError: the health listener's address is taken or not ours.
    """
    stopping = lifecycle.stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = () if lifecycle.stop is not None else _SIGNALS
    listener = (
        None
        if lifecycle.listen is None
        else HealthListener(lifecycle.health, lifecycle.listen.host, lifecycle.listen.port)
    )
    if listener is not None:
        await listener.start()
    for number in signals:
        loop.add_signal_handler(number, stopping.set)
    try:
        yield stopping
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        if listener is not None:
            await listener.stop()
