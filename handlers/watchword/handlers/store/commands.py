"""Statements about commands to nodes, for operators and the keeper, in the transaction of whoever calls.

Commands are locked after their node, in the order of their ids; the keeper locks commands alone, and passes
over what others hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from watchword.handlers.rows import CommandRow
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.join_statements import COMMANDS
from watchword.handlers.store.translate import translated

_COLUMNS = tuple(field.name for field in fields(CommandRow))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFilter:
    """Which commands; None narrows nothing. `after` is the id that the page before ended with."""

    node: UUID | None = None
    tenant: str | None = None
    state: str | None = None
    kind: str | None = None
    after: UUID | None = None


def command_row(record: Any) -> CommandRow:  # noqa: ANN401 - a record
    """Return a record as a row."""
    return CommandRow(**{name: record[name] for name in _COLUMNS})


def change_values(rows: Sequence[CommandRow]) -> tuple[list[Any], ...]:
    """Return what the statement `change` takes."""
    return (
        [row.id for row in rows],
        [row.state for row in rows],
        [row.version for row in rows],
        [row.reason for row in rows],
        [row.exit_status for row in rows],
        [row.dispatched_at for row in rows],
        [row.certificate_serial for row in rows],
        [row.ended_at for row in rows],
    )


async def standing(
    connection: Connection, node: UUID
) -> tuple[bytes, tuple[str, ...] | None] | None:
    """Return serial and allowed kinds of a locked node's certificate that is in force, or None."""
    row = await connection.fetchrow(COMMANDS.standing, node)
    if row is None:
        return None
    kinds = row["allowed_kinds"]
    return row["serial"], None if kinds is None else tuple(kinds)


async def count_open(connection: Connection, node: UUID) -> int:
    """Return how many commands wait for a node."""
    found: int = await connection.fetchval(COMMANDS.count_open, node)
    return found


async def add(connection: Connection, row: CommandRow, payload: bytes) -> None:
    """Add a command to a locked node; what has ended already keeps no payload."""
    await connection.execute(
        COMMANDS.add,
        row.id,
        row.node_id,
        row.tenant,
        row.kind,
        row.payload_sha256,
        row.payload_bytes,
        row.state,
        row.reason,
        row.enqueued_at,
        row.enqueued_by,
        row.why,
        row.expires_at,
        row.ended_at,
    )
    if row.ended_at is None:
        await connection.execute(COMMANDS.add_payload, row.id, payload)


async def change(connection: Connection, rows: Sequence[CommandRow]) -> None:
    """Write rows of locked commands."""
    await connection.execute(COMMANDS.change, *change_values(rows))


async def list_commands(
    connection: Connection, wanted: CommandFilter, limit: int
) -> list[CommandRow]:
    """Return a page of commands by id."""
    rows = await connection.fetch(
        COMMANDS.list, wanted.node, wanted.tenant, wanted.state, wanted.kind, wanted.after, limit
    )
    return [command_row(row) for row in rows]


async def show(connection: Connection, command: UUID) -> CommandRow | None:
    """Return a command."""
    record = await connection.fetchrow(COMMANDS.show, command)
    return None if record is None else command_row(record)


async def node_of(connection: Connection, command: UUID) -> UUID | None:
    """Return whose a command is."""
    found: UUID | None = await connection.fetchval(COMMANDS.node_of, command)
    return found


async def lock(connection: Connection, node: UUID, command: UUID) -> CommandRow | None:
    """Lock the open commands of a locked node and this one; return it."""
    for record in await connection.fetch(COMMANDS.lock, [node], [command]):
        if record["id"] == command:
            return command_row(record)
    return None


async def lock_due(connection: Connection, now: datetime, limit: int) -> list[CommandRow]:
    """Lock open commands whose time is over, but for what others hold."""
    return [command_row(row) for row in await connection.fetch(COMMANDS.lock_due, now, limit)]


async def waiting(connection: Connection) -> dict[str, int]:
    """Return how many commands are queued, and how many are dispatched."""
    async with translated():
        return {row["state"]: row["n"] for row in await connection.fetch(COMMANDS.waiting)}
