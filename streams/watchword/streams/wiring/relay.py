"""Puts a relay together."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from watchword.streams.lifecycle import HealthAddress, Lifecycle
from watchword.streams.relay import RelayOptions, run_relay
from watchword.streams.settings import Settings
from watchword.streams.tracing.opening import tracing_of
from watchword.streams.wiring.connections import kafka_connection, open_database

if TYPE_CHECKING:
    from watchword.streams.relay.tracing import RelayTracing
    from watchword.streams.tracing.spans import Spans


async def run(settings: Settings) -> None:
    """Relay until SIGTERM or SIGINT.

    Raises:
        ConfigRefused: nothing says where PostgreSQL or Kafka is.
        OSError: the health listener's address is taken.
    """
    relay, name = settings.relay, settings.worker.name
    kafka = kafka_connection(settings)
    async with AsyncExitStack() as stack:
        spans = stack.enter_context(tracing_of(settings.tracing, "relay", name))
        database = await stack.enter_async_context(open_database(settings, "relay"))
        await run_relay(
            RelayOptions(
                database=database,
                kafka=kafka,
                name=name,
                lifecycle=Lifecycle(listen=HealthAddress(settings.health.host, relay.health_port)),
                lease_s=relay.lease_s,
                wave_rows=relay.wave_rows,
                idle_s=relay.idle_ms / 1000,
                tenant_topics=frozenset(settings.refusals.tenant_topics),
                tracing=_tracing(spans),
            )
        )


def _tracing(spans: "Spans | None") -> "RelayTracing | None":
    if spans is None:
        return None
    from watchword.streams.tracing.relay import TracedRelay  # noqa: PLC0415 - needs the extra

    return TracedRelay(spans)
