"""Puts a signer together."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial

import structlog
from prometheus_client import Gauge

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
    _count(counters)
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


def _count(counters: SignerCounters) -> None:
    for name, text in (
        ("connections", "Open connections."),
        (
            "connections_refused",
            "Connections refused for their user, or because there are too many.",
        ),
        ("calls", "Calls answered."),
        ("certificates", "Certificates signed."),
        ("orders_refused", "Orders that broke the profile."),
        ("failures", "Calls that failed, and connections that broke the protocol."),
    ):
        gauge = Gauge(f"watchword_signer_{name}", text)
        gauge.set_function(partial(_value, counters, name))


def _value(counters: SignerCounters, name: str) -> float:
    return float(getattr(counters, name))
