"""One operator's desk: every operation, for what their access covers and no more.

The API and the console go through it, so that a tenant's operator meets the same walls in both. What
belongs to no tenant (bans, the audit log, who may act) is for whoever has the whole deployment.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import NotFound
from watchword.handlers.operators import (
    bans,
    commands,
    nodes,
    overview,
    reclaims,
    refusals,
    requests,
    tokens,
)
from watchword.handlers.operators.access import Access
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import Banned
from watchword.handlers.operators.commands import CommandOrder
from watchword.handlers.operators.grants import Created, check_secret_id
from watchword.handlers.operators.nodes import NodeFilter, node_id
from watchword.handlers.operators.reclaims import ReclaimOrder
from watchword.handlers.operators.refusals import Dimension, Reasons, RefusalFilter
from watchword.handlers.operators.requests import Seen
from watchword.handlers.operators.standing import SeenNode, Verb, change_nodes
from watchword.handlers.operators.tokens import TokenOrder
from watchword.handlers.rows import CommandRow
from watchword.handlers.store import lookups
from watchword.handlers.store.approvals import RequestFilter
from watchword.handlers.store.commands import CommandFilter
from watchword.handlers.store.connection import Database
from watchword.handlers.store.lookups import AuditFilter
from watchword.handlers.store.operators import Row
from watchword.handlers.store.refusals import Named


@dataclass(frozen=True, slots=True)
class Desk:
    """What one operator may do. Every method raises `NotFound` outside their tenant, and `Denied` beyond their role."""

    database: Database
    access: Access
    cluster: str
    kinds: frozenset[str]
    """The registered kinds of commands of the deployment."""

    def actor(self, why: str = "") -> Actor:
        """Return who acts, for the audit log; raises `BadArgument`."""
        return Actor(self.access.who, why, self.cluster, self.kinds)

    # Joins that wait

    async def list_requests(self, wanted: RequestFilter, limit: int) -> list[Row]:
        """See `requests.list_requests`."""
        narrowed = replace(wanted, tenant=self.access.narrowed(wanted.tenant))
        return await requests.list_requests(self.database, narrowed, limit=limit)

    async def show_requests(self, ids: Sequence[UUID]) -> list[Row]:
        """See `requests.show_requests`."""
        await self._own_requests(ids)
        return await requests.show_requests(self.database, ids)

    async def approve(self, seen: Sequence[Seen], comment: str) -> list[Row]:
        """See `requests.approve`."""
        await self._own_requests([one.id for one in seen])
        self.access.need("approver")
        return await requests.approve(self.database, self.actor(comment), seen)

    async def reject(self, seen: Sequence[Seen], comment: str) -> list[Row]:
        """See `requests.reject`."""
        await self._own_requests([one.id for one in seen])
        self.access.need("approver")
        return await requests.reject(self.database, self.actor(comment), seen)

    # Nodes

    async def list_nodes(self, wanted: NodeFilter, limit: int) -> list[Row]:
        """See `nodes.list_nodes`."""
        narrowed = replace(wanted, tenant=self.access.narrowed(wanted.tenant))
        return await nodes.list_nodes(self.database, narrowed, limit=limit)

    async def find_nodes(
        self, wanted: NodeFilter, *, states: Sequence[str], at_most: int
    ) -> list[UUID]:
        """See `nodes.find_nodes`."""
        narrowed = replace(wanted, tenant=self.access.narrowed(wanted.tenant))
        return await nodes.find_nodes(self.database, narrowed, states=states, at_most=at_most)

    async def show_node(self, node: str) -> Row:
        """See `nodes.show_node`."""
        await self._own_nodes([node_id(node)])
        return await nodes.show_node(self.database, node)

    async def change_nodes(self, verb: Verb, seen: Sequence[SeenNode], why: str) -> list[Row]:
        """See `standing.change_nodes`."""
        await self._own_nodes([one.id for one in seen])
        self.access.need("admin")
        return await change_nodes(self.database, self.actor(why), verb, seen)

    async def ban_nodes(self, seen: Sequence[SeenNode], why: str) -> Banned:
        """See `bans.ban_nodes`. A ban reaches into every tenant."""
        self.access.need_root("ban")
        self.access.need("admin")
        return await bans.ban_nodes(self.database, self.actor(why), seen)

    async def unban_nodes(self, seen: Sequence[SeenNode], why: str) -> Banned:
        """See `bans.unban_nodes`."""
        self.access.need_root("ban")
        self.access.need("admin")
        return await bans.unban_nodes(self.database, self.actor(why), seen)

    # Commands to nodes

    async def list_commands(self, wanted: CommandFilter, limit: int) -> list[CommandRow]:
        """See `commands.list_commands`."""
        narrowed = replace(wanted, tenant=self.access.narrowed(wanted.tenant))
        return await commands.list_commands(self.database, narrowed, limit=limit)

    async def show_command(self, command: UUID) -> CommandRow:
        """See `commands.show_command`."""
        await self._own_command(command)
        return await commands.show_command(self.database, command)

    async def send_command(self, order: CommandOrder, why: str) -> CommandRow:
        """See `commands.send_command`."""
        await self._own_nodes([order.seen.id])
        self.access.need("admin")
        return await commands.send_command(self.database, self.actor(why), order)

    async def cancel_command(self, command: UUID, version: int | None, why: str) -> CommandRow:
        """See `commands.cancel_command`."""
        await self._own_command(command)
        self.access.need("admin")
        return await commands.cancel_command(
            self.database, self.actor(why), command, version=version
        )

    # Bans

    async def list_bans(self, kind: str | None, after: bytes | None, limit: int) -> list[Row]:
        """See `bans.list_bans`."""
        self.access.need_root("ban")
        return await bans.list_bans(self.database, kind=kind, after=after, limit=limit)

    async def add_bans(self, subjects: Sequence[Subject], why: str) -> Banned:
        """See `bans.add_bans`."""
        self.access.need_root("ban")
        self.access.need("admin")
        return await bans.add_bans(self.database, self.actor(why), subjects)

    async def remove_bans(self, subjects: Sequence[Subject], why: str) -> Banned:
        """See `bans.remove_bans`."""
        self.access.need_root("ban")
        self.access.need("admin")
        return await bans.remove_bans(self.database, self.actor(why), subjects)

    # Reclaims

    async def grant_reclaim(self, order: ReclaimOrder, why: str) -> Row:
        """See `reclaims.grant_reclaim`."""
        await self._own_nodes([order.node])
        self.access.need("admin")
        return await reclaims.grant_reclaim(self.database, self.actor(why), order)

    async def list_reclaims(
        self, node: UUID | None, after: UUID | None, limit: int, *, all_too: bool
    ) -> list[Row]:
        """See `reclaims.list_reclaims`; of one node, or of all for whoever has the whole deployment."""
        if node is None:
            self.access.need_root("reclaim grant")
        else:
            await self._own_nodes([node])
        return await reclaims.list_reclaims(
            self.database, node=node, all_too=all_too, after=after, limit=limit
        )

    async def revoke_reclaim(self, grant: UUID, why: str) -> Row:
        """See `reclaims.revoke_reclaim`."""
        async with self.database.transaction() as connection:
            tenant = await lookups.tenant_of_grant(connection, grant)
        self.access.check_inside(
            "reclaim grant", [grant], {} if tenant is None else {grant: tenant}
        )
        self.access.need("admin")
        return await reclaims.revoke_reclaim(self.database, self.actor(why), grant)

    # Join tokens

    async def list_tokens(
        self, tenant: str | None, after: str | None, limit: int, *, spent_too: bool
    ) -> list[Row]:
        """See `tokens.list_tokens`."""
        return await tokens.list_tokens(
            self.database,
            tenant=self.access.narrowed(tenant),
            spent_too=spent_too,
            after=after,
            limit=limit,
        )

    async def create_token(self, order: TokenOrder, why: str) -> Created:
        """See `tokens.create_token`."""
        self.access.narrowed(order.tenant)
        self.access.need("admin")
        return await tokens.create_token(self.database, self.actor(why), order)

    async def revoke_token(self, token: str, why: str) -> Row:
        """See `tokens.revoke_token`."""
        check_secret_id(token, "a token's")
        async with self.database.transaction() as connection:
            tenant = await lookups.tenant_of_token(connection, token)
        self.access.check_inside("token", [token], {} if tenant is None else {token: tenant})
        self.access.need("admin")
        return await tokens.revoke_token(self.database, self.actor(why), token)

    # Refusals

    async def list_refusals(self, wanted: RefusalFilter, limit: int) -> list[Row]:
        """See `refusals.list_refusals`."""
        narrowed = replace(wanted, tenant=self.access.narrowed(wanted.tenant))
        return await refusals.list_refusals(self.database, narrowed, limit=limit)

    async def show_refusal(self, named: Named, reasons: Reasons, now: datetime) -> Row:
        """See `refusals.show_refusal`. Of other tenants' refusals and nodes nobody outside learns the number."""
        row = await refusals.show_refusal(self.database, named, reasons, now)
        if self.access.is_root:
            return row
        if row["tenant"] != self.access.scope:
            raise NotFound(refusals.NO_SUCH)
        nodes_inside = [node for node in row["nodes"] if node["tenant"] == self.access.scope]
        return row | {"nodes": nodes_inside, "refused_in_a_day": None}

    async def top_refusals(self, wanted: RefusalFilter, by: Dimension, limit: int) -> list[Row]:
        """See `refusals.top_refusals`."""
        narrowed = replace(wanted, tenant=self.access.narrowed(wanted.tenant))
        return await refusals.top_refusals(self.database, narrowed, by, limit=limit)

    def export_refusals(self, wanted: RefusalFilter, until: datetime) -> AsyncGenerator[list[Row]]:
        """See `refusals.export_refusals`."""
        narrowed = replace(wanted, tenant=self.access.narrowed(wanted.tenant))
        return refusals.export_refusals(self.database, narrowed, until)

    # The whole

    async def show_overview(self, tenant: str | None) -> Row:
        """See `overview.show_overview`."""
        return await overview.show_overview(self.database, self.access.narrowed(tenant))

    async def list_audit(self, wanted: AuditFilter, limit: int) -> list[Row]:
        """See `overview.list_audit`."""
        self.access.need_root("audit log")
        return await overview.list_audit(self.database, wanted, limit=limit)

    async def _own_requests(self, ids: Sequence[UUID]) -> None:
        if not self.access.is_root:
            async with self.database.transaction() as connection:
                tenants = await lookups.tenants_of_requests(connection, ids)
            self.access.check_inside("join request", ids, tenants)

    async def _own_nodes(self, ids: Sequence[UUID]) -> None:
        if not self.access.is_root:
            async with self.database.transaction() as connection:
                tenants = await lookups.tenants_of_nodes(connection, ids)
            self.access.check_inside("node", ids, tenants)

    async def _own_command(self, command: UUID) -> None:
        if not self.access.is_root:
            async with self.database.transaction() as connection:
                tenant = await lookups.tenant_of_command(connection, command)
            self.access.check_inside(
                "command", [command], {} if tenant is None else {command: tenant}
            )
