"""Client certificates as TLS has verified them, on the connection that a request came by.

They are read from the connection alone: a header in which a proxy says whose certificate it saw is believed by nobody here.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from watchword.handlers.errors import Denied
from watchword.handlers.operators.certificates import ClientCertificate, read_client_certificate

_log = structlog.get_logger(__name__)

_STATE: Final = "client_certificate"


class CertifiedProtocol(H11Protocol):
    """uvicorn's protocol, which also tells the application whose certificate TLS has verified."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Read the certificate once, for all requests of the connection."""
        super().connection_made(transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        der = None if tls is None else tls.getpeercert(binary_form=True)
        if der is not None:
            try:
                self.app_state = {**self.app_state, _STATE: read_client_certificate(der)}
            except Denied as error:
                _log.warning("client certificate passed over", error=str(error))


def certificate_of(request: Request) -> ClientCertificate | None:
    """Return the certificate of the connection that a request came by."""
    found: ClientCertificate | None = request.scope.get("state", {}).get(_STATE)
    return found


def ask_for_certificates(context: ssl.SSLContext, authorities: Path) -> None:
    """Let clients show a certificate of these CAs, or none. One of another CA, or out of its time, ends the handshake.

    Raises:
        OSError: the file cannot be read.
        ssl.SSLError: it holds no certificates.
    """
    context.load_verify_locations(authorities)
    context.verify_mode = ssl.CERT_OPTIONAL
    # A resumed session is not verified anew: each connection shows its key.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
