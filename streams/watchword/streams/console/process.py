"""The console as a process: listens, serves, and drains."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog
import uvicorn

from watchword.handlers.errors import ConfigRefused
from watchword.streams.console.application import Keys, Place, application
from watchword.streams.console.client_certificates import CertifiedProtocol, ask_for_certificates
from watchword.streams.console.options import ConsoleOptions, TlsFiles
from watchword.streams.health import Health, HealthListener
from watchword.streams.stop_signals import on_stop_signals

_log = structlog.get_logger(__name__)

_BACKLOG = 512
_DRAIN_S = 8
_AT_ONCE = 200


class Console:
    """One console, of any number."""

    def __init__(self, options: ConsoleOptions, health: Health) -> None:
        """Open nothing yet."""
        self._options = options
        self._listener = HealthListener(health, options.health_host, options.health_port)
        self._health = health
        self.url = ""
        """Where people reach it, once `running`."""

    @property
    def health_port(self) -> int:
        """The port of `/healthz`, `/readyz` and `/metrics`, once `running`."""
        return self._listener.port

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve inside the block; drain at its end.

        Raises:
            ConfigRefused: the TLS files cannot be used.
            OSError: an address is taken or not ours.
        """
        options = self._options
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listening = socket.create_server(
            (options.host, options.port), family=family, backlog=_BACKLOG
        )
        with listening:
            port = listening.getsockname()[1]
            scheme = "http" if options.tls is None else "https"
            self.url = options.public_url or f"{scheme}://{options.host}:{port}"
            server = self._server()
            await self._listener.start()
            await server.startup(sockets=[listening])
            serving = asyncio.create_task(server.main_loop())
            telling = self._telling()
            try:
                _log.info("console started", host=options.host, port=port)
                yield
            finally:
                self._health.stopping = True
                if telling is not None:
                    telling.cancel()
                server.should_exit = True
                await serving
                await server.shutdown(sockets=[listening])
                await self._listener.stop()
                _log.info("console stopped")

    def _server(self) -> uvicorn.Server:
        options = self._options
        app = application(
            options.office,
            Place(url=self.url),
            Keys(
                session_key=options.session_key,
                session_life=options.session_life,
                oidc=options.oidc(self.url),
                has_certificates=options.tls is not None
                and options.tls.client_authorities is not None,
            ),
        )
        config = uvicorn.Config(
            app,
            http=CertifiedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_AT_ONCE,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        config.load()
        if options.tls is not None:
            config.ssl = _tls(options.tls)
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        return server

    def _telling(self) -> "asyncio.Task[None] | None":
        webhook = self._options.webhook
        if webhook is None:
            return None
        return asyncio.create_task(webhook.keep(self._options.office.database))


async def run_console(options: ConsoleOptions, health: Health) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; then drain, which takes at most 8 s.

    Raises:
        ConfigRefused: the options cannot be used.
        OSError: an address is taken or not ours.
    """
    stop = asyncio.Event()
    with on_stop_signals(stop):
        async with Console(options, health).running():
            await stop.wait()


def _tls(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_authorities is not None:
            ask_for_certificates(context, files.client_authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigRefused([f"console TLS: {type(error).__name__}: {error}"]) from error
    return context
