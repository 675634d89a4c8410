"""Options of commands that change something, and the database they change it in."""

import os
import pwd
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cyclopts import Parameter

from watchword.handlers.kinds import registry
from watchword.handlers.operators.actor import Actor
from watchword.handlers.store.connection import Database
from watchword.streams.cli.options import Shown
from watchword.streams.settings import Settings
from watchword.streams.wiring.connections import open_database


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Acting(Shown):
    """For commands that change something."""

    why: str = ""
    """For the audit log."""

    who: str | None = None
    """Who acts, for the audit log; the user of this process if not given."""

    def actor(self, settings: Settings) -> Actor:
        """Return who acts, for the audit log; raises `BadArgument`."""
        deployment = settings.deployment
        who = self.who or _user()
        return Actor(who, self.why, deployment.cluster, registry(deployment.kinds))


ACTING = Acting()


@asynccontextmanager
async def operating(options: Shown) -> AsyncGenerator[tuple[Settings, Database]]:
    """Give the settings and the database for one command, and close it afterwards."""
    settings = options.settings()
    async with open_database(settings, "cli") as database:
        yield settings, database


def _user() -> str:
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid-{uid}"
    return f"{name}@{socket.gethostname()}"
