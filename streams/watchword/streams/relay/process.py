"""The relay as a process: it waits out what is away, says why it is not ready, and stops on a signal."""

import asyncio

import structlog

from watchword.handlers.errors import StoreRejected, StoreUnavailable
from watchword.streams.leased import Backoff, rest, run_leased
from watchword.streams.relay.options import RelayOptions
from watchword.streams.relay.relay import KafkaAway, Relay

_log = structlog.get_logger(__name__)

_LONGEST_BACKOFF_S = 2.0
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

    async def work(stopping: asyncio.Event) -> None:
        await _work(options, relay, problems, stopping)

    await run_leased("relay", relay, options.lifecycle, work)


async def _work(
    options: RelayOptions, relay: Relay, problems: Problems, stopping: asyncio.Event
) -> None:
    backoff = Backoff(_LONGEST_BACKOFF_S)
    while not stopping.is_set():
        try:
            published = await relay.step()
        except (StoreUnavailable, StoreRejected) as error:
            problems.store = str(error)
            _log.warning(
                "postgresql is away", relay=relay.id, error=str(error), retry_s=backoff.seconds
            )
        except KafkaAway as error:
            problems.store = None
            problems.kafka = str(error)
            _log.warning("wave failed", relay=relay.id, error=str(error), retry_s=backoff.seconds)
        else:
            problems.store = problems.kafka = None
            backoff.reset()
            await rest(stopping, _rest_after(published, options))
            continue
        await backoff.pause(stopping)


def _rest_after(published: int, options: RelayOptions) -> float:
    """Return how long to rest: not at all under a backlog, a little so that waves fill, else until it is worth a look."""
    if published * 4 >= options.wave_rows:
        return 0.0
    return min(_BUSY_REST_S, options.idle_s) if published else options.idle_s
