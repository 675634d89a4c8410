"""Puts a signer together."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

import structlog
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from watchword.streams.health import Health
from watchword.streams.lifecycle import HealthAddress, Lifecycle, living
from watchword.streams.settings import Settings
from watchword.streams.signer.authorities import Authorities
from watchword.streams.signer.ca_watch import CaWatch
from watchword.streams.signer.server import SignerCounters, serve
from watchword.streams.wiring.authority_files import AuthorityFiles

_log = structlog.get_logger(__name__)

_BACKDATE_AND_MORE = timedelta(minutes=10)
"""Certificates begin a little before their order."""


async def run(settings: Settings) -> None:
    """Sign until SIGTERM or SIGINT.

    Raises:
        ConfigRefused: the CA key cannot be used, or no socket can be made.
        Conflict: another signer answers on the socket.
        OSError: the health listener's address is taken.
    """
    authorities, cas = Authorities(), AuthorityFiles(settings, also=_BACKDATE_AND_MORE)
    watch = CaWatch(cas.directory, authorities, cas.issuing, cas.probe)
    await watch.begin()
    uids = frozenset(settings.signer.allowed_uids)
    counters = SignerCounters()
    REGISTRY.register(SignerMetrics(counters, authorities))
    health, taking = Health(), asyncio.Event()
    health.add_check("ca", authorities.problem)
    health.add_check("socket", lambda: None if taking.is_set() else "starting")
    address = HealthAddress(settings.health.host, settings.signer.health_port)
    async with living(Lifecycle(health, address)) as stopping:
        serving = asyncio.create_task(
            serve(
                authorities,
                settings.signer.socket,
                mode=0o660 if uids else 0o600,
                allowed_uids=uids or None,
                counters=counters,
                ready=taking.set,
            )
        )
        waiting = asyncio.create_task(stopping.wait())
        watching = asyncio.create_task(watch.keep())
        _log.info("signer started", socket=str(settings.signer.socket))
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            health.stopping = True
            for task in (serving, waiting, watching):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await serving
        _log.info("signer stopped")


class SignerMetrics:
    """What the signer has counted, and when its CA ends; a collector of `prometheus_client`."""

    def __init__(self, counters: SignerCounters, authorities: Authorities) -> None:
        """Read from these whenever somebody asks."""
        self._counters = counters
        self._authorities = authorities

    def describe(self) -> Iterable[Metric]:
        """Name them beforehand."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Return them as they are now."""
        yield GaugeMetricFamily(
            "watchword_signer_connections", "Open connections.", value=self._counters.connections
        )
        for name, text in (
            (
                "connections_refused",
                "Connections refused for their user, or because there are too many.",
            ),
            ("calls", "Calls answered."),
            ("certificates", "Certificates signed."),
            ("orders_refused", "Orders that broke the profile."),
            ("failures", "Calls that failed, and connections that broke the protocol."),
        ):
            yield CounterMetricFamily(
                f"watchword_signer_{name}", text, value=getattr(self._counters, name)
            )
        ends = self._authorities.not_after
        if ends is not None:
            yield GaugeMetricFamily(
                "watchword_signer_ca_not_after_timestamp_seconds",
                "When the issuing CA's own certificate ends; nothing is signed after it.",
                value=ends.timestamp(),
            )
