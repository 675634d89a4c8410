"""An operator in a process of its own: reads orders as JSON lines, writes results as JSON lines.

The one place where the fault suite calls the product: tokens must be made by the product, or a
rebuild from the journal could not find them.
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from watchword.handlers.errors import Conflict, Unavailable
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.places import create_place, create_tenant
from watchword.handlers.operators.tokens import TokenOrder, create_token, revoke_token
from watchword.handlers.store.connection import Database

DSN_FILE = "FAULTS_DSN_FILE"
TENANT, POOL = "acme", "racks"
_REST_S = 0.2
_ACTOR = Actor("operator of the fault suite", "load")

T = TypeVar("T")


async def _again(work: Callable[[], Awaitable[T]]) -> T:
    """Do it until PostgreSQL is there. A token that was made without our knowing is spent by nobody."""
    while True:
        try:
            return await work()
        except Unavailable:
            await asyncio.sleep(_REST_S)


async def _make(database: Database, order: dict[str, Any]) -> list[list[str]]:
    made: list[list[str]] = []
    fields = dict(order)
    count = fields.pop("count")
    seconds = fields.pop("expires_s", None)
    expires_in = timedelta(days=1) if seconds is None else timedelta(seconds=seconds)
    token_order = TokenOrder(tenant=TENANT, pool=POOL, expires_in=expires_in, **fields)
    for _ in range(count):
        created = await _again(lambda: create_token(database, _ACTOR, token_order))
        _, token_id, secret = created.text.split(".")
        raw = base64.urlsafe_b64decode(secret + "=")
        made.append([token_id, raw.hex()])
    return made


async def _found(database: Database) -> None:
    """Make the tenant and the pool that machines join."""
    await _unless_there(lambda: create_tenant(database, _ACTOR, TENANT))
    await _unless_there(lambda: create_place(database, _ACTOR, "pool", TENANT, POOL))


async def _unless_there(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await _again(work)
    except Conflict:
        return  # The try before had come through.


async def _serve() -> None:
    dsn = Path(os.environ[DSN_FILE]).read_text()
    database = Database(dsn, application_name="faults-operator")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        result: object = None
        match order.pop("do"):
            case "found":
                await _found(database)
            case "make":
                result = await _make(database, order)
            case _:
                await _unless_there(partial(revoke_token, database, _ACTOR, order["token"]))
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    await database.close()


if __name__ == "__main__":
    asyncio.run(_serve())
