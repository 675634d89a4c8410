"""Whether a process traces, and with what: the one place where the SDK is set up."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog

from watchword.streams import logs
from watchword.streams.settings.tracing import TracingSettings, header_fields

if TYPE_CHECKING:
    from watchword.streams.tracing.spans import Spans

_log = structlog.get_logger(__name__)

_FLUSH_S = 2.0
"""How long the last spans may take to get away when a process ends; a collector that is away holds nobody up."""


@contextmanager
def tracing_of(
    settings: TracingSettings, process: str, instance: str | None = None
) -> Generator["Spans | None"]:
    """Give what makes spans; None where nothing is traced. `instance` names this process among others of its kind.

    Without the extra `otel` a line says so, and nothing is traced: no join waits for a trace.
    """
    url = settings.url
    if url is None:
        yield None
        return
    try:
        from watchword.streams.tracing import sdk  # noqa: PLC0415 - only where something is traced
    except ImportError as error:
        _log.warning("nothing is traced: install watchword[otel]", missing=error.name)
        yield None
        return
    headers = settings.headers
    provider = sdk.provider(
        url,
        headers={} if headers is None else header_fields(headers.get_secret_value()),
        sampled=settings.sampled,
        resource={
            "service.name": settings.service_name or f"watchword-{process}",
            "service.version": version("watchword"),
            **({} if instance is None else {"service.instance.id": instance}),
        },
    )
    logs.correlate(sdk.current_ids)
    _log.info("traces are sent", url=url, sampled=settings.sampled)
    try:
        yield provider.spans()
    finally:
        logs.correlate(None)
        # The SDK waits for up to 30 s, and its own thread is one that nobody has to wait for.
        ending = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(_FLUSH_S)
