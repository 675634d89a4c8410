"""The desk of an operator at a distance: the same acts as `handlers.operators.desk`, through `/api/v1`."""

import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import (
    BadArgument,
)
from watchword.handlers.operators.bans import Banned
from watchword.handlers.operators.commands import CommandOrder
from watchword.handlers.operators.grants import Created
from watchword.handlers.operators.nodes import NodeFilter
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.handlers.operators.requests import Seen
from watchword.handlers.operators.standing import SeenNode, Verb
from watchword.handlers.operators.tokens import TokenOrder
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.commands import CommandFilter
from watchword.handlers.store.operators import Row
from watchword.handlers.store.refusals import RefusalFilter
from watchword.schemas.canonical import b64
from watchword.streams.cli.remote_answers import away, error_of, items_of, read_answer
from watchword.streams.console.api import PREFIX

if TYPE_CHECKING:
    import httpx

_PAGE: Final = 1000
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RemoteDesk:
    """What one operator may see and do at a distance. Rows have the names and the text that the API gives them."""

    client: "httpx.AsyncClient"

    # Joins that wait

    async def list_requests(self, wanted: RequestFilter, limit: int) -> list[Row]:
        """Return a page of joins that wait."""
        query = {
            "state": wanted.state or "all",
            "tenant": wanted.tenant,
            "site": wanted.site,
            "pool": wanted.pool,
            "attestor": wanted.attestor,
            "csr": wanted.csr,
            "after": wanted.after,
            "limit": limit,
        }
        return await self._rows("/requests", query)

    async def show_requests(self, ids: Sequence[UUID]) -> list[Row]:
        """Return joins in full."""
        return [await self._get(f"/requests/{one}") for one in ids]

    async def approve(self, seen: Sequence[Seen], comment: str) -> list[Row]:
        """Approve joins, all of them or none."""
        return await self._decided("approve", seen, comment)

    async def reject(self, seen: Sequence[Seen], comment: str) -> list[Row]:
        """Reject joins, all of them or none."""
        return await self._decided("reject", seen, comment)

    async def _decided(self, verb: str, seen: Sequence[Seen], comment: str) -> list[Row]:
        chosen = [{"id": str(one.id), "version": one.version} for one in seen]
        body = {"requests": chosen, "comment": comment}
        return items_of(await self._post(f"/requests/{verb}", body))

    # Nodes

    async def list_nodes(self, wanted: NodeFilter, limit: int) -> list[Row]:
        """Return a page of nodes."""
        life = wanted.expiring_in
        query = {
            "tenant": wanted.tenant,
            "pool": wanted.pool,
            "site": wanted.site,
            "role": wanted.role,
            "state": wanted.state,
            "named": wanted.named,
            "after": wanted.after,
            "expiringInS": None if life is None else int(life.total_seconds()),
            "limit": limit,
        }
        return await self._rows("/nodes", query)

    async def find_nodes(
        self, wanted: NodeFilter, *, states: Sequence[str], at_most: int
    ) -> list[UUID]:
        """Return the ids of all nodes that a filter finds in one of these states; raises `BadArgument` for too many."""
        found: list[UUID] = []
        for state in states:
            if wanted.state not in {None, state}:
                continue
            after: object = None
            while True:
                query = {
                    "tenant": wanted.tenant,
                    "pool": wanted.pool,
                    "site": wanted.site,
                    "role": wanted.role,
                    "state": state,
                    "after": after,
                    "limit": _PAGE,
                }
                page = await self._get("/nodes", query)
                found += [UUID(row["id"]) for row in items_of(page)]
                after = page["next"]
                if after is None:
                    break
                if len(found) > at_most:
                    message = f"more than {at_most} nodes: narrow the filters"
                    raise BadArgument(message)
        return found

    async def show_node(self, node: str) -> Row:
        """Return a node in full."""
        return await self._get(f"/nodes/{node}")

    async def change_nodes(self, verb: Verb, seen: Sequence[SeenNode], why: str) -> list[Row]:
        """Change nodes, all of them or none."""
        return await self._changed(verb, seen, why)

    async def ban_nodes(self, seen: Sequence[SeenNode], why: str) -> Banned:
        """Ban nodes."""
        return Banned((), await self._changed("ban", seen, why))

    async def unban_nodes(self, seen: Sequence[SeenNode], why: str) -> Banned:
        """End the bans of nodes."""
        return Banned((), await self._changed("unban", seen, why))

    async def _changed(self, verb: str, seen: Sequence[SeenNode], why: str) -> list[Row]:
        chosen = [{"id": str(one.id), "version": one.version} for one in seen]
        return items_of(await self._post(f"/nodes/{verb}", {"nodes": chosen, "why": why}))

    # Commands to nodes

    async def list_commands(self, wanted: CommandFilter, limit: int) -> list[Row]:
        """Return a page of commands; never what they say."""
        query = {
            "node": wanted.node,
            "tenant": wanted.tenant,
            "state": wanted.state,
            "kind": wanted.kind,
            "after": wanted.after,
            "limit": limit,
        }
        return await self._rows("/commands", query)

    async def send_command(self, order: CommandOrder, why: str) -> Row:
        """Let a command wait until its node asks."""
        body = {
            "node": str(order.seen.id),
            "version": order.seen.version,
            "kind": order.kind,
            "payloadBase64": b64(order.payload),
            "expiresInS": int(order.expires_in.total_seconds()),
            "why": why,
        }
        return await self._post("/commands", body)

    async def cancel_command(self, command: UUID, version: int | None, why: str) -> Row:
        """Hand a command out no more."""
        return await self._post(f"/commands/{command}/cancel", {"version": version, "why": why})

    # Reclaims

    async def grant_reclaim(self, order: ReclaimOrder, why: str) -> Row:
        """Let a machine have a node back, once."""
        body = {
            "attestor": order.attestor,
            "kind": order.subject.kind,
            "value": order.subject.value,
            "expiresInS": int(order.expires_in.total_seconds()),
            "why": why,
        }
        return await self._post(f"/nodes/{order.node}/reclaims", body)

    async def list_reclaims(
        self, node: UUID | None, after: UUID | None, limit: int, *, all_too: bool
    ) -> list[Row]:
        """Return a page of a node's grants; raises `BadArgument` without a node."""
        if node is None:
            message = "--node: at a server, the grants of one node"
            raise BadArgument(message)
        query = {"after": after, "limit": limit, "all": all_too or None}
        return await self._rows(f"/nodes/{node}/reclaims", query)

    async def revoke_reclaim(self, grant: UUID, why: str) -> Row:
        """Take a grant back."""
        return await self._post(f"/reclaims/{grant}/revoke", {"why": why})

    # Bans

    async def list_bans(self, kind: str | None, after: bytes | None, limit: int) -> list[Row]:
        """Return a page of bans."""
        query = {"kind": kind, "after": None if after is None else after.hex(), "limit": limit}
        return await self._rows("/bans", query)

    async def add_bans(self, subjects: Sequence[Subject], why: str) -> Banned:
        """Ban subjects."""
        return await self._banned("add", subjects, why)

    async def remove_bans(self, subjects: Sequence[Subject], why: str) -> Banned:
        """End bans."""
        return await self._banned("remove", subjects, why)

    async def _banned(self, verb: str, subjects: Sequence[Subject], why: str) -> Banned:
        named = [{"kind": one.kind, "value": one.value} for one in subjects]
        done = await self._post(f"/bans/{verb}", {"subjects": named, "why": why})
        return Banned(done["bans"], done["nodes"], done["requests"])

    # Join tokens

    async def list_tokens(
        self, tenant: str | None, after: str | None, limit: int, *, spent_too: bool
    ) -> list[Row]:
        """Return a page of join tokens."""
        query = {"tenant": tenant, "after": after, "limit": limit, "all": spent_too or None}
        return await self._rows("/tokens", query)

    async def create_token(self, order: TokenOrder, why: str) -> Created:
        """Make a join token."""
        life: timedelta | None = order.expires_in
        body = {
            "tenant": order.tenant,
            "pool": order.pool,
            "site": order.site,
            "role": order.role,
            "uses": order.uses,
            "expiresInS": None if life is None else int(life.total_seconds()),
            "expect": order.expect,
            "allowReclaim": order.allow_reclaim,
            "allowedKinds": None if order.allowed_kinds is None else list(order.allowed_kinds),
            "why": why,
        }
        row = await self._post("/tokens", body)
        return Created(row, row.pop("token"))

    async def revoke_token(self, token: str, why: str) -> Row:
        """Revoke a join token."""
        return await self._post(f"/tokens/{token}/revoke", {"why": why})

    # Refusals

    async def list_refusals(self, wanted: RefusalFilter, limit: int) -> list[Row]:
        """Return a page of refusals."""
        return await self._rows("/refusals", {**_refusals(wanted), "limit": limit})

    async def show_refusal(self, name: str) -> Row:
        """Return one refusal with what it means."""
        return await self._get(f"/refusals/{name}")

    async def top_refusals(self, wanted: RefusalFilter, by: str, limit: int) -> list[Row]:
        """Return counts of refusals."""
        return await self._rows("/refusals/top", {**_refusals(wanted), "by": by, "limit": limit})

    async def export_lines(self, wanted: RefusalFilter, form: str) -> AsyncGenerator[str]:
        """Yield every refusal that fits, a line each, with its end."""
        query = {n: str(value) for n, value in _refusals(wanted).items() if value is not None}
        path = PREFIX + "/refusals/export"
        with away():
            async with self.client.stream("GET", path, params={**query, "format": form}) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise error_of(answer)
                async for line in answer.aiter_lines():
                    yield f"{line}\n"

    # HTTP

    async def _rows(self, path: str, query: Mapping[str, object]) -> list[Row]:
        return items_of(await self._get(path, query))

    async def _get(self, path: str, query: Mapping[str, object] | None = None) -> Row:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        with away():
            answer = await self.client.get(
                PREFIX + path,
                params={n: "true" if v is True else str(v) for n, v in given.items()},
            )
        return read_answer(answer)

    async def _post(self, path: str, body: Mapping[str, object]) -> Row:
        with away():
            answer = await self.client.post(PREFIX + path, json=body)
        return read_answer(answer)


@asynccontextmanager
async def remote_desk(
    server: str, token: str | None, tls: ssl.SSLContext
) -> AsyncGenerator[RemoteDesk]:
    """Give the desk of whoever the token is for; without one, whom the certificate of the TLS context names."""
    import httpx  # noqa: PLC0415 - 70 ms that a command at the database need not pay

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=server, headers=headers, timeout=_PATIENCE_S, verify=tls
    ) as client:
        yield RemoteDesk(client)


def _refusals(wanted: RefusalFilter) -> dict[str, object]:
    def digits(digest: bytes | None) -> str | None:
        return None if digest is None else digest.hex()

    before = wanted.before
    return {
        "since": wanted.since.isoformat(),
        "until": None if wanted.until is None else wanted.until.isoformat(),
        "tenant": wanted.tenant,
        "attestor": wanted.attestor,
        "reason": wanted.reason,
        "csr": digits(wanted.csr_sha256),
        "hardwareKey": digits(wanted.hardware_key_sha256),
        "tried": digits(wanted.tried_sha256),
        "address": wanted.address,
        "requestId": wanted.request_id,
        "requestSha256": digits(wanted.request_sha256),
        "before": None if before is None else f"{before[0].isoformat()},{before[1]}",
    }
