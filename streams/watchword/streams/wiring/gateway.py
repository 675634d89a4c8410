"""Puts a gateway together: it needs Kafka, and neither keys nor the database."""

from dataclasses import replace

from watchword.streams.gateway.options import GatewayOptions, Limits, TlsFiles
from watchword.streams.gateway.process import run_gateway
from watchword.streams.settings import Settings
from watchword.streams.tracing.opening import tracing_of
from watchword.streams.wiring.connections import kafka_connection

_CONNECTIONS_BESIDE_WAITERS = 2000


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigRefused: the settings cannot be used.
        OSError: an address is taken.
    """
    with tracing_of(settings.tracing, "gateway") as spans:
        options = gateway_options(settings)
        if spans is not None:
            from watchword.streams.tracing.gateway import TracedGateway  # noqa: PLC0415 - needs the extra

            options = replace(options, tracing=TracedGateway(spans, options.requests_topic))
        await run_gateway(options)


def gateway_options(settings: Settings) -> GatewayOptions:
    """Return what the gateway's process is told."""
    gateway = settings.gateway
    tls = None
    if gateway.tls_certificate_file is not None and gateway.tls_key_file is not None:
        tls = TlsFiles(gateway.tls_certificate_file, gateway.tls_key_file)
    return GatewayOptions(
        kafka=kafka_connection(settings),
        host=gateway.host,
        port=gateway.port,
        tls=tls,
        trusted_proxies=gateway.trusted_proxies,
        health_host=settings.health.host,
        health_port=gateway.health_port,
        limits=Limits(
            requests_per_address=gateway.requests_per_address,
            requests_window_s=gateway.requests_window_s,
            waiters_per_address=gateway.waiters_per_address,
            waiters=gateway.waiters,
            answer_bytes=gateway.answer_cache_bytes,
            connections=gateway.waiters + _CONNECTIONS_BESIDE_WAITERS,
        ),
    )
