"""Options of commands that work here or at a distance: on the database, or through a console's API."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.kinds import registry
from watchword.handlers.operators.access import Access
from watchword.handlers.operators.desk import Desk
from watchword.schemas.ids import ROOT
from watchword.streams.cli.acting import Acting, operating
from watchword.streams.cli.options import Shown
from watchword.streams.cli.remote_desk import RemoteDesk, remote_desk


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Reaching(Shown):
    """For commands that look, here or at a distance."""

    server: str | None = None
    """A console's address, such as https://watchword.example: work through its API, without the database."""

    api_token_file: Path | None = None
    """The file with the API token for --server, which `watchword operators create` makes."""

    client_certificate_file: Path | None = None
    """Instead of a token: PEM of a client certificate with its key, whose name `watchword operators admit` let in."""

    server_ca_file: Path | None = None
    """PEM of the CAs for the certificate of --server, instead of the well-known ones."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReachingActing(Reaching, Acting):
    """For commands that change something, here or at a distance."""


REACHING = Reaching()
REACHING_ACTING = ReachingActing()


@asynccontextmanager
async def at_desk(options: Reaching) -> AsyncGenerator[Desk | RemoteDesk]:
    """Give the desk for one command: the database's, with every right, or the API's, with the token's or certificate's.

    Raises:
        BadArgument: there is a server without one of the two, or the other way round; or `--who` at a server, which knows.
    """
    shown = (options.api_token_file, options.client_certificate_file)
    if (options.server is None) != (shown.count(None) == len(shown)) or None not in shown:
        message = "--server goes with --api-token-file or with --client-certificate-file, with one of them"
        raise BadArgument(message)
    if options.server is not None:
        if isinstance(options, ReachingActing) and options.who is not None:
            message = "--who: the server knows by what it is shown who acts"
            raise BadArgument(message)
        token = None if options.api_token_file is None else _token(options.api_token_file)
        async with remote_desk(options.server, token, _tls(options)) as desk:
            yield desk
        return
    async with operating(options) as (settings, database):
        who = options.actor(settings).who if isinstance(options, ReachingActing) else "cli"
        deployment = settings.deployment
        kinds = registry(deployment.kinds)
        yield Desk(database, Access(who, ROOT, "admin"), deployment.cluster, kinds)


def _tls(options: Reaching) -> ssl.SSLContext:
    import httpx  # noqa: PLC0415 - 70 ms that a command at the database need not pay

    try:
        context = (
            httpx.create_ssl_context()
            if options.server_ca_file is None
            else ssl.create_default_context(cafile=options.server_ca_file)
        )
        if options.client_certificate_file is not None:
            context.load_cert_chain(options.client_certificate_file)
    except (OSError, ssl.SSLError) as error:
        message = f"--client-certificate-file, --server-ca-file: cannot be used ({type(error).__name__}: {error})"
        raise BadArgument(message) from None
    return context


def _token(file: Path) -> str:
    try:
        text = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"--api-token-file: {file} cannot be read ({type(error).__name__})"
        raise BadArgument(message) from None
    if not text or not text.isprintable() or " " in text:
        message = f"--api-token-file: {file} holds no API token"
        raise BadArgument(message)
    return text
