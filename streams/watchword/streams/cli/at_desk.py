"""Options of commands that work here or at a distance: on the database, or through a console's API."""

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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReachingActing(Reaching, Acting):
    """For commands that change something, here or at a distance."""


REACHING = Reaching()
REACHING_ACTING = ReachingActing()


@asynccontextmanager
async def at_desk(options: Reaching) -> AsyncGenerator[Desk | RemoteDesk]:
    """Give the desk for one command: the database's, with every right, or the API's, with the token's.

    Raises:
        BadArgument: there is a server without a token, or the other way round; or `--who` at a server, which knows.
    """
    if (options.server is None) != (options.api_token_file is None):
        message = "--server and --api-token-file go together"
        raise BadArgument(message)
    if options.server is not None and options.api_token_file is not None:
        if isinstance(options, ReachingActing) and options.who is not None:
            message = "--who: the server knows by the token who acts"
            raise BadArgument(message)
        token = _token(options.api_token_file)
        async with remote_desk(options.server, token) as desk:
            yield desk
        return
    async with operating(options) as (settings, database):
        who = options.actor(settings).who if isinstance(options, ReachingActing) else "cli"
        deployment = settings.deployment
        kinds = registry(deployment.kinds)
        yield Desk(database, Access(who, ROOT, "admin"), deployment.cluster, kinds)


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
