"""The relay as a process: it waits out what is away, says why it is not ready, and stops on a signal."""

import asyncio
import contextlib
import random

import structlog

from watchword.handlers.errors import StoreRejected, StoreUnavailable
from watchword.streams.lifecycle import living
from watchword.streams.relay.options import RelayOptions
from watchword.streams.relay.relay import KafkaAway, Relay

_log = structlog.get_logger(__name__)

_WAVE_GRACE_S = 1.0
_LEAVE_S = 0.6
_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 2.0
_BUSY_REST_S = 0.01


class Problems:
    """Why the relay does not work, by what is away; read by the health checks."""

    def __init__(self, options: RelayOptions, relay: Relay) -> None:
        """Add the checks."""
        self.store: str | None = "no step has been done yet"
        self.kafka: str | None = None
        self._relay = relay
        options.lifecycle.health.add_check("postgresql", lambda: self.store)
        options.lifecycle.health.add_check("kafka", self._of_kafka)

    def _of_kafka(self) -> str | None:
        if missing := self._relay.missing_topics:
            return f"topics are missing: {', '.join(missing)}"
        return self.kafka


async def run_relay(options: RelayOptions) -> None:
    """Publish until a signal comes (or `options.lifecycle.stop`); then release the shards, within 2 s.

    Never raises for PostgreSQL or Kafka being away: it waits, and readiness says why.

    Raises:
        OSError: the health listener's address is taken or not ours.
    """
    relay = Relay(options)
    problems = Problems(options, relay)
    async with living(options.lifecycle) as stopping:
        working = asyncio.create_task(_work(options, relay, problems, stopping))
        waiting = asyncio.create_task(stopping.wait())
        _log.info("relay started", relay=relay.id)
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            options.lifecycle.health.stopping = True
            await asyncio.wait({working}, timeout=_WAVE_GRACE_S)
        finally:
            is_idle = working.done() and not working.cancelled()
            for task in (working, waiting):
                task.cancel()
            await asyncio.wait({working, waiting})
            await _leave(relay, is_idle=is_idle)
        if is_idle:
            working.result()  # a bug in a step ends the process, with its shards released


async def _work(
    options: RelayOptions, relay: Relay, problems: Problems, stopping: asyncio.Event
) -> None:
    backoff = _FIRST_BACKOFF_S
    while not stopping.is_set():
        try:
            published = await relay.step()
        except (StoreUnavailable, StoreRejected) as error:
            problems.store = str(error)
            _log.warning("postgresql is away", relay=relay.id, error=str(error), retry_s=backoff)
        except KafkaAway as error:
            problems.store = None
            problems.kafka = str(error)
            _log.warning("wave failed", relay=relay.id, error=str(error), retry_s=backoff)
        else:
            problems.store = problems.kafka = None
            backoff = _FIRST_BACKOFF_S
            await _rest(stopping, _rest_after(published, options))
            continue
        await _rest(stopping, backoff * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret
        backoff = min(_LAST_BACKOFF_S, backoff * 2)


def _rest_after(published: int, options: RelayOptions) -> float:
    """Return how long to rest: not at all under a backlog, a little so that waves fill, else until it is worth a look."""
    if published * 4 >= options.wave_rows:
        return 0.0
    return min(_BUSY_REST_S, options.idle_s) if published else options.idle_s


async def _rest(stopping: asyncio.Event, seconds: float) -> None:
    if seconds <= 0.0:
        await asyncio.sleep(0)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


async def _leave(relay: Relay, *, is_idle: bool) -> None:
    try:
        async with asyncio.timeout(_LEAVE_S):
            await relay.close(is_idle=is_idle)
    except (StoreUnavailable, StoreRejected, TimeoutError) as error:
        _log.warning("leases not released", relay=relay.id, error=type(error).__name__)
    else:
        _log.info("relay stopped", relay=relay.id)
