"""One connection's statements about commands to nodes, for workers. Operators and the keeper have theirs in `commands`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from watchword.handlers.rows import CommandRow, Digest, LockedCommand, SentCommand
from watchword.handlers.store.commands import change_values, command_row
from watchword.handlers.store.join_reads import ReadingConnection, columns, tuple_of
from watchword.handlers.store.join_statements import COMMANDS


class CommandWrites(ReadingConnection):
    """Part of `join.ports.Session`."""

    async def lock_commands(
        self, nodes: Sequence[UUID], reported: Sequence[UUID]
    ) -> Mapping[UUID, list[LockedCommand]]:
        """See `join.ports.Session`."""
        found: dict[UUID, list[LockedCommand]] = {}
        for row in await self._fetch(COMMANDS.lock, nodes, reported):
            locked = LockedCommand(
                command_row(row), row["payload"], row["serial"], tuple_of(row["allowed_kinds"])
            )
            found.setdefault(locked.row.node_id, []).append(locked)
        return found

    async def change_commands(
        self, changed: Sequence[CommandRow], sent: Mapping[UUID, Digest]
    ) -> None:
        """See `join.ports.Session`."""
        if changed:
            await self._execute(COMMANDS.change, *change_values(changed))
        if sent:
            await self._execute(COMMANDS.mark_sent, *columns(list(sent.items()), 2))

    async def activate(self, nodes: Sequence[UUID], now: datetime, why: str) -> None:
        """See `join.ports.Session`."""
        await self._execute(COMMANDS.activate, nodes, now, why)

    async def sent_with(self, digests: Sequence[Digest]) -> Mapping[Digest, list[SentCommand]]:
        """See `join.ports.Session`."""
        found: dict[Digest, list[SentCommand]] = {}
        for row in await self._fetch(COMMANDS.sent_with, digests):
            sent = SentCommand(
                id=row["id"],
                node_id=row["node_id"],
                kind=row["kind"],
                expires_at=row["expires_at"],
                payload=row["payload"],
                serial=row["serial"],
                allowed_kinds=tuple_of(row["allowed_kinds"]),
            )
            found.setdefault(row["sent_with"], []).append(sent)
        return found
