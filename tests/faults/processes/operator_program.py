"""An operator in a process of its own: reads orders as JSON lines, writes results as JSON lines.

The one place where the fault suite calls the product: tokens must be made by the product, or a
rebuild from the journal could not find them.
"""

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from watchword.handlers.errors import Conflict, Unavailable, WatchwordError
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import ban_nodes
from watchword.handlers.operators.commands import CommandOrder, send_command
from watchword.handlers.operators.explanations import MOST_REQUESTS, Question, answer_to, ask
from watchword.handlers.operators.grants import Grant
from watchword.handlers.operators.images import ImageOrder, create_image
from watchword.handlers.operators.places import create_place, create_tenant
from watchword.handlers.operators.requests import Seen, approve, list_requests, reject
from watchword.handlers.operators.site_keys import SiteKeyOrder, add_site_key
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.operators.tokens import TokenOrder, create_token, revoke_token
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.connection import Database
from watchword.schemas.times import parse_rfc3339

DSN_FILE = "FAULTS_DSN_FILE"
TENANT, POOL = "acme", "racks"
_REST_S = 0.2
_ACTOR = Actor("operator of the fault suite", "load")
_AT_ONCE = 4
"""Orders that are carried out at a time: at hundreds of machines a second, one after the other is too slow to keep
up with those that wait for an operator's word."""
_EXPLAINED_S = 300.0
"""How long one answer may take; a job that takes longer than two minutes is ended by its worker."""

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


async def _make_anchors(database: Database, site: str, public: bytes) -> dict[str, str]:
    """Make an image that an operator's word has to go with, and trust the key of a site's agent."""
    await _unless_there(lambda: create_place(database, _ACTOR, "site", TENANT, site))
    image = await _again(
        lambda: create_image(database, _ACTOR, ImageOrder(grant=Grant(tenant=TENANT, pool=POOL)))
    )
    _, image_id, secret = image.text.split(".")
    order = SiteKeyOrder(tenant=TENANT, site=site, pool=POOL, public_key=public)
    await _unless_there(lambda: add_site_key(database, _ACTOR, order))
    raw = base64.urlsafe_b64decode(secret + "=")
    return {"image": image_id, "secret": raw.hex(), "kid": sha256(public).hexdigest()[:16]}


async def _decide(database: Database, csr_sha256: bytes, word: str) -> bool:
    """Decide on the waiting join of a CSR; tell whether that was decided so, now or by a try before."""
    while True:
        row = await _again(lambda: _waiting(database, csr_sha256))
        if row is None:
            return False
        if row["state"] != "pending":
            said = "approved" if row["state"] == "consumed" else row["state"]
            return bool(said == word)
        seen = [Seen(row["id"], row["version"])]
        decide = approve if word == "approved" else reject
        try:
            await _again(partial(decide, database, _ACTOR, seen))
        except Conflict:
            continue  # Decided by a try of which nobody heard, or it has changed: look again.
        return True


async def _waiting(database: Database, csr_sha256: bytes) -> dict[str, Any] | None:
    """Return the join request of a CSR, by the digest that an agent prints."""
    wanted = RequestFilter(tenant=TENANT, csr=csr_sha256.hex())
    return next((dict(row) for row in await list_requests(database, wanted)), None)


async def _explain(database: Database, order: dict[str, Any]) -> list[dict[str, Any] | None]:
    """Ask about stretches of time, so many at once, and begin with none after the time that there is."""
    ends = time.monotonic() + order["within_s"]
    free = asyncio.Semaphore(order["at_once"])

    async def one(since: str, until: str) -> dict[str, Any] | None:
        question = Question(
            since=parse_rfc3339(since), until=parse_rfc3339(until), limit=MOST_REQUESTS
        )
        async with free:
            if time.monotonic() > ends:
                return None
            try:
                job = await _again(lambda: ask(database, _ACTOR, question))
                return await answer_to(database, job, within_s=_EXPLAINED_S)
            except WatchwordError as error:
                return {"error": str(error)}

    return await asyncio.gather(*(one(*stretch) for stretch in order["stretches"]))


async def _unless_there(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await _again(work)
    except Conflict:
        return  # The try before had come through.


async def _done(database: Database, order: dict[str, Any]) -> object:
    """Carry out one order and return its result."""
    match order.pop("do"):
        case "found":
            await _found(database)
        case "make":
            return await _make(database, order)
        case "anchors":
            public = bytes.fromhex(order["public"])
            return await _make_anchors(database, order["site"], public)
        case "tell":
            command = CommandOrder(
                seen=SeenNode(UUID(order["node"])), kind=order["kind"], payload=b"{}"
            )
            row = await _again(partial(send_command, database, _ACTOR, command))
            return str(row.id)
        case "ban":
            seen = [SeenNode(UUID(order["node"]))]
            await _unless_there(partial(ban_nodes, database, _ACTOR, seen))
        case "explain":
            return await _explain(database, order)
        case "decide":
            return await _decide(database, bytes.fromhex(order["csr"]), order["word"])
        case _:
            await _unless_there(partial(revoke_token, database, _ACTOR, order["token"]))
    return None


async def _serve() -> None:
    dsn = Path(os.environ[DSN_FILE]).read_text()
    database = Database(dsn, application_name="faults-operator")
    loop = asyncio.get_running_loop()
    free = asyncio.Semaphore(_AT_ONCE)

    async def serve(order: dict[str, Any]) -> None:
        nth = order.pop("nth")
        async with free:
            result = await _done(database, order)
        sys.stdout.write(json.dumps([nth, result]) + "\n")
        sys.stdout.flush()

    # What fails ends the process, and is in its log: whoever gave an order would wait for ever.
    async with asyncio.TaskGroup() as orders:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            orders.create_task(serve(json.loads(line)))
    await database.close()


if __name__ == "__main__":
    asyncio.run(_serve())
