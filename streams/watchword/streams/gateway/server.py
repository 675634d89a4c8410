"""The listener: uvicorn's server with deadlines for TLS, without its signal handlers and its exits."""

import asyncio
import ssl
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from watchword.handlers.errors import ConfigRefused
from watchword.streams.gateway.options import TlsFiles
from watchword.streams.gateway.protocol import Door, GatewayProtocol

_log = structlog.get_logger(__name__)

_BACKLOG = 4096
_TLS_GOODBYE_S = 2.0
_LOOK_AT_FILES_S = 30.0


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for the listener: TLS 1.2 or later.

    Raises:
        ConfigRefused: the certificate or the key cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigRefused([f"gateway TLS: {type(error).__name__}: {error}"]) from error
    return context


async def renew_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Use a new certificate for new connections as soon as its files have changed. For ever."""
    seen = _stamps(files)
    while True:
        await asyncio.sleep(_LOOK_AT_FILES_S)
        now = _stamps(files)
        if now == seen:
            continue
        seen = now
        try:
            tls_context(files)  # a half-written pair must not spoil the one in use
            context.load_cert_chain(files.certificate, files.key)
        except (ConfigRefused, OSError, ssl.SSLError) as error:
            _log.warning("new certificate cannot be used", error=type(error).__name__)
        else:
            _log.info("new certificate in use")


def _stamps(files: TlsFiles) -> tuple[int, ...]:
    try:
        return tuple(file.stat().st_mtime_ns for file in (files.certificate, files.key))
    except OSError:
        return ()


class GatewayServer(uvicorn.Server):
    """Listens and serves between `start` and `drain`."""

    def __init__(
        self,
        app: ASGIApp,
        door: Door,
        *,
        host: str,
        port: int,
        header_bytes: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Listen nowhere yet."""
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=GatewayProtocol,
                ws="none",
                loop="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",  # its warnings can be caused by anybody, as many as they like
                access_log=False,
                proxy_headers=False,
                server_header=False,
                h11_max_incomplete_event_size=header_bytes + 8 * 1024,
                timeout_keep_alive=int(door.timings.keep_alive_s),
                timeout_graceful_shutdown=int(door.timings.drain_s),
            )
        )
        self._door = door
        self._tls = tls
        self._ticking: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        options: dict[str, Any] = {}
        if self._tls is not None:
            options = {
                "ssl": self._tls,
                "ssl_handshake_timeout": self._door.timings.tls_handshake_s,
                "ssl_shutdown_timeout": _TLS_GOODBYE_S,
            }
        listener = await asyncio.get_running_loop().create_server(
            self._connection,
            self.config.host,
            self.config.port,
            backlog=_BACKLOG,
            **options,
        )
        self.servers = [listener]
        self.started = True
        await self.on_tick(0)  # makes the Date header
        self._ticking = asyncio.create_task(self.main_loop())

    async def drain(self) -> None:
        """Listen no more, finish what was begun within the deadline, and close every connection."""
        self.should_exit = True
        if self._ticking is not None:
            await self._ticking
        await self.shutdown()

    def _connection(self) -> GatewayProtocol:
        return GatewayProtocol(self.config, self.server_state, self._door)
