"""Puts a relay together."""

from watchword.streams.lifecycle import HealthAddress, Lifecycle
from watchword.streams.relay import RelayOptions, run_relay
from watchword.streams.settings import Settings
from watchword.streams.wiring.connections import kafka_connection, open_database


async def run(settings: Settings) -> None:
    """Relay until SIGTERM or SIGINT.

    Raises:
        ConfigRefused: nothing says where PostgreSQL or Kafka is.
        OSError: the health listener's address is taken.
    """
    relay = settings.relay
    kafka = kafka_connection(settings)
    async with open_database(settings, "relay") as database:
        await run_relay(
            RelayOptions(
                database=database,
                kafka=kafka,
                name=settings.worker.name,
                lifecycle=Lifecycle(listen=HealthAddress(settings.health.host, relay.health_port)),
                lease_s=relay.lease_s,
                wave_rows=relay.wave_rows,
                idle_s=relay.idle_ms / 1000,
                tenant_topics=frozenset(settings.refusals.tenant_topics),
            )
        )
