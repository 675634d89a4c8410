"""The gateway as a process: wires its parts, runs them, and stops them in order."""

import asyncio
import json
import resource
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog

from watchword.handlers.crypto.jws import unverified_payload
from watchword.handlers.errors import SignatureBroken
from watchword.streams.cycles import spare_the_collector
from watchword.streams.gateway import metrics
from watchword.streams.gateway.addresses import Proxies
from watchword.streams.gateway.answers import Answers
from watchword.streams.gateway.envelope import Envelope
from watchword.streams.gateway.kafka_ports import Record
from watchword.streams.gateway.options import GatewayOptions, Limits
from watchword.streams.gateway.pending import Pending
from watchword.streams.gateway.protocol import Door
from watchword.streams.gateway.published import Published
from watchword.streams.gateway.requests import Requests
from watchword.streams.gateway.routes import Desk, application
from watchword.streams.gateway.server import GatewayServer, renew_certificate, tls_context
from watchword.streams.gateway.tail import Tail
from watchword.streams.health import Health, HealthListener
from watchword.streams.stop_signals import on_stop_signals

_log = structlog.get_logger(__name__)

_FILES_FOR_OTHERS = 256
"""Files that the process needs besides its connections: Kafka, TLS, logs."""

_DIGEST_BYTES = 32
_FLUSH_S = 1.0


class Gateway:
    """One replica. It holds no key and no database address."""

    def __init__(self, options: GatewayOptions) -> None:
        """Wire everything; open nothing.

        Raises:
            ConfigRefused: a trusted proxy is no network, or the TLS files cannot be used.
        """
        limits = _within_files(options.limits)
        timings = options.timings
        proxies = Proxies(options.trusted_proxies)
        self._options = options
        self._tls = None if options.tls is None else tls_context(options.tls)
        self._answers = Answers(
            requests=limits.answers,
            total_bytes=limits.answer_bytes,
            per_request=limits.answers_per_request,
            ttl_s=timings.answer_ttl_s,
        )
        self._published = Published()
        self._pending = Pending(window_s=timings.resend_window_s, capacity=limits.answers)
        self._requests = Requests(
            options.kafka,
            options.requests_topic,
            deadline_s=timings.send_s,
            in_flight=limits.sends_in_flight,
        )
        self._responses_tail = Tail(
            options.kafka,
            options.responses_topic,
            self._take_response,
            lookback_s=timings.lookback_s,
        )
        self._published_tail = Tail(
            options.kafka, options.published_topic, self._take_published, lookback_s=None
        )
        desk = Desk(
            limits,
            timings,
            self._requests,
            self._pending,
            self._answers,
            self._published,
            options.tracing,
        )
        self._server = GatewayServer(
            Envelope(application(desk), proxies, limits),
            Door(proxies, limits, timings),
            host=options.host,
            port=options.port,
            header_bytes=limits.header_bytes,
            tls=self._tls,
        )
        self.health = Health()
        self.health.add_check("requests", self._requests.problem)
        self.health.add_check("responses", self._responses_tail.problem)
        self.health.add_check("published", self._published_tail.problem)
        self._listener = HealthListener(self.health, options.health_host, options.health_port)

    @property
    def port(self) -> int:
        """The port that machines are served on, once `running`."""
        return self._server.port

    @property
    def health_port(self) -> int:
        """The port of `/healthz`, `/readyz` and `/metrics`, once `running`."""
        return self._listener.port

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve inside the block; drain at its end, however it ends.

        Raises:
            OSError: an address is taken or not ours.
        """
        await self._listener.start()
        try:
            await self._server.start()
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(_for_ever(self._requests.run())),
                    tasks.create_task(_for_ever(self._responses_tail.run())),
                    tasks.create_task(_for_ever(self._published_tail.run())),
                ]
                if self._tls is not None and self._options.tls is not None:
                    renewing = renew_certificate(self._tls, self._options.tls)
                    background.append(tasks.create_task(_for_ever(renewing)))
                _log.info("gateway started", host=self._options.host, port=self.port)
                try:
                    yield
                finally:
                    await self._drain()
                    for task in background:
                        task.cancel()
        finally:
            await self._listener.stop()

    async def _drain(self) -> None:
        """Say at once that we are not ready, send waiters away, finish what is on its way."""
        self.health.stopping = True
        self._answers.send_away()
        await self._server.drain()
        try:
            async with asyncio.timeout(_FLUSH_S):
                await self._pending.settle()
        except TimeoutError:
            _log.warning("stopped with requests on their way")
        _log.info("gateway stopped")

    def _take_response(self, record: Record) -> None:
        digest = answered_digest(record.value)
        if digest is None or record.value is None:
            metrics.ANSWERS_READ.labels("unreadable").inc()
            return
        is_new = self._answers.add(digest, record.value)
        metrics.ANSWERS_READ.labels("new" if is_new else "repeated").inc()
        self._pending.answered(digest)

    def _take_published(self, record: Record) -> None:
        self._published.put(record.key, record.value)


async def run_gateway(options: GatewayOptions) -> None:
    """Run one replica until SIGTERM, SIGINT or cancellation; then drain, which takes at most 10 s.

    Raises:
        ConfigRefused: the options cannot be used.
        OSError: an address is taken or not ours.
    """
    stop = asyncio.Event()
    with on_stop_signals(stop):
        async with Gateway(options).running():
            spare_the_collector()
            await stop.wait()


def answered_digest(value: bytes | None) -> bytes | None:
    """Return the digest of the request that a signed answer says it answers, 32 bytes; None if none.

    The signature is not checked: that takes the pinned key, which the agent has.
    """
    if value is None:
        return None
    try:
        payload = json.loads(unverified_payload(value))
        digest = bytes.fromhex(payload["requestSha256"])
    except (SignatureBroken, ValueError, TypeError, KeyError, RecursionError):
        return None
    return digest if len(digest) == _DIGEST_BYTES else None


async def _for_ever(running: Coroutine[None, None, None]) -> None:
    """Await what must not end, and end the process if it does.

    A task that was cancelled by nobody counts: a task group would take it for an ordinary end.
    """
    try:
        await running
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    message = "a part of the gateway ended by itself"
    raise RuntimeError(message)


def _within_files(limits: Limits) -> Limits:
    """Raise the process's limit of open files as far as it goes, and keep connections below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _FILES_FOR_OTHERS
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < wanted:
        _log.warning("fewer connections than configured", open_files=soft)
        return replace(limits, connections=max(1, soft - _FILES_FOR_OTHERS))
    return limits
