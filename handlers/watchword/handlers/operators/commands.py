"""Commands to nodes: sent, listed, cancelled.

A kind is checked when a command is sent, against the certificate that the node has then, and again when it is
handed out (`join.dispatching`). What is refused is written down too, with its event, and told to whoever sent
it. What a command says to its node is in no event, no audit row and no list; they have its digest.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import Literal
from uuid import UUID

from watchword.handlers.command_events import command_event
from watchword.handlers.errors import BadArgument, Conflict, Denied, NotFound
from watchword.handlers.journal import new_event_id
from watchword.handlers.kinds import permits
from watchword.handlers.node_events import ChangedNode
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.grants import check_limit
from watchword.handlers.operators.standing import SeenNode, change_of, check_reason, lock_seen
from watchword.handlers.rows import CommandRow
from watchword.handlers.store import commands, journal, operators
from watchword.handlers.store.commands import CommandFilter
from watchword.handlers.store.connection import Connection, Database
from watchword.schemas.commands import MAX_PAYLOAD_BYTES

LONGEST = timedelta(days=30)
MAX_OPEN = 100
"""Commands that may wait for one node."""

STATES = ("queued", "dispatched", "done", "failed", "refused", "cancelled", "expired")

Fault = Literal["not-allowed", "node-state", "no-certificate"]

_TOLD: dict[Fault, str] = {
    "not-allowed": "its certificate does not allow {kind}",
    "node-state": "it is {state}",
    "no-certificate": "it has no certificate that is in force",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOrder:
    """What a node is to do. `seen` may name the version of the node that the operator saw."""

    seen: SeenNode
    kind: str
    payload: bytes = field(default=b"", repr=False)
    """What its handler gets on standard input."""
    expires_in: timedelta = timedelta(days=1)

    def check(self, registered: frozenset[str]) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        if self.kind not in registered:
            message = f"kind: one of {', '.join(sorted(registered))}, not {self.kind[:64]!r}"
            raise BadArgument(message)
        if len(self.payload) > MAX_PAYLOAD_BYTES:
            message = f"payload: at most {MAX_PAYLOAD_BYTES} bytes"
            raise BadArgument(message)
        if not timedelta(0) < self.expires_in <= LONGEST:
            message = f"a command waits at most {LONGEST.days} days"
            raise BadArgument(message)


async def send_command(database: Database, actor: Actor, order: CommandOrder) -> CommandRow:
    """Let a command wait for its node to ask; return its row.

    Raises:
        BadArgument: no reason, or the order makes no sense (a kind that is not registered); nothing is written.
        NotFound: there is no such node.
        Conflict: the node has changed since it was seen, or too many commands wait for it; nothing is written.
        Denied: the node may not be told this. Row, event and audit row say so.
    """
    check_reason(actor)
    order.check(actor.kinds)
    async with database.transaction() as connection:
        node = (await lock_seen(connection, [order.seen]))[order.seen.id]
        if await commands.count_open(connection, order.seen.id) >= MAX_OPEN:
            message = f"{MAX_OPEN} commands wait for node {node.id} already"
            raise Conflict(message)
        fault = await _fault(connection, order, node)
        now = await operators.clock(connection)
        row = CommandRow(
            id=new_event_id(),
            node_id=order.seen.id,
            tenant=node.tenant,
            kind=order.kind,
            payload_sha256=sha256(order.payload).digest(),
            payload_bytes=len(order.payload),
            state="queued" if fault is None else "refused",
            version=1,
            reason=fault,
            exit_status=None,
            enqueued_at=now,
            enqueued_by=actor.who,
            why=actor.why,
            expires_at=now + order.expires_in,
            dispatched_at=None,
            certificate_serial=None,
            ended_at=None if fault is None else now,
        )
        await commands.add(connection, row, order.payload)
        await _audit(
            connection,
            actor,
            row,
            "node.command.enqueue" if fault is None else "node.command.refuse",
        )
        event = command_event(
            "node.command.enqueued" if fault is None else "node.command.refused",
            row,
            change_of(actor, now),
        )
        await journal.append(connection, [event])
    if fault is not None:
        told = _TOLD[fault].format(kind=order.kind, state=node.state)
        message = f"node {node.id} may not be told {order.kind}: {told} (command {row.id})"
        raise Denied(message)
    return row


async def list_commands(
    database: Database, wanted: CommandFilter, *, limit: int = 100
) -> list[CommandRow]:
    """Return a page of commands by id, which is by age.

    Raises:
        BadArgument: the page is empty or too long, or there is no such state.
    """
    check_limit(limit)
    if wanted.state is not None and wanted.state not in STATES:
        message = f"state: one of {', '.join(STATES)}"
        raise BadArgument(message)
    async with database.transaction() as connection:
        return await commands.list_commands(connection, wanted, limit)


async def show_command(database: Database, command: UUID) -> CommandRow:
    """Return a command's row; raises `NotFound`."""
    async with database.transaction() as connection:
        row = await commands.show(connection, command)
    if row is None:
        raise _missing(command)
    return row


async def cancel_command(
    database: Database, actor: Actor, command: UUID, *, version: int | None = None
) -> CommandRow:
    """Keep a command from being handed out, or from being handed out again; return its row.

    One that was handed out before may have been run, or run yet.

    Raises:
        BadArgument: no reason.
        NotFound: there is none of that id.
        Conflict: it has ended, or has changed since it was seen; nothing is changed.
    """
    check_reason(actor)
    async with database.transaction() as connection:
        was = await _locked(connection, command)
        if version is not None and version != was.version:
            message = f"command {command} has changed since it was seen: version {was.version}, not {version}"
            raise Conflict(message)
        if was.ended_at is not None:
            message = f"command {command} is {was.state}: nothing to cancel"
            raise Conflict(message)
        now = await operators.clock(connection)
        row = replace(was, state="cancelled", version=was.version + 1, ended_at=now)
        await commands.change(connection, [row])
        await _audit(connection, actor, row, "node.command.cancel")
        event = command_event("node.command.cancelled", row, change_of(actor, now))
        await journal.append(connection, [event])
    return row


async def _fault(connection: Connection, order: CommandOrder, node: ChangedNode) -> Fault | None:
    """Return why a locked node may not be told this now."""
    if node.state not in ("adopting", "active"):
        return "node-state"
    certificate = await commands.standing(connection, order.seen.id)
    if certificate is None:
        return "no-certificate"
    _, allowed = certificate
    return None if permits(allowed, order.kind) else "not-allowed"


async def _locked(connection: Connection, command: UUID) -> CommandRow:
    """Lock a command's node, and then the command; raises `NotFound`."""
    node = await commands.node_of(connection, command)
    if node is not None:
        await lock_seen(connection, [SeenNode(node)])
        if (row := await commands.lock(connection, node, command)) is not None:
            return row
    raise _missing(command)


def _missing(command: UUID) -> NotFound:
    message = f"no command {command}"
    return NotFound(message)


async def _audit(connection: Connection, actor: Actor, row: CommandRow, action: str) -> None:
    await operators.audit(
        connection,
        at=row.ended_at or row.enqueued_at,
        who=actor.who,
        action=action,
        target=str(row.node_id),
        why=actor.why,
        detail={
            "command": str(row.id),
            "kind": row.kind,
            "payloadSha256": row.payload_sha256.hex(),
            "reason": row.reason,
        },
    )
