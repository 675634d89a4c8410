"""What nodes are told over the years, beside a model of what becomes of each command."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import pytest

from tests.support.fetches import ADA, commands_in, fetch, told
from tests.support.joins import Bench
from tests.support.renewals import Node
from watchword.handlers.errors import Conflict, Denied
from watchword.handlers.operators.commands import CommandOrder, cancel_command, send_command
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.store.connection import Database
from watchword.schemas.commands import Report

KINDS = ("diag.ping", "disk.wipe")
ONLY_DIAG = ("diag.*",)
LIFE_H = 30

_LIVE = frozenset(("adopting", "active"))
_ENDED = frozenset(("done", "refused", "cancelled"))


class Standing(Protocol):
    """What the model of a node has that commands depend on."""

    state: str
    node: Node
    expires_h: int
    revoked: bool
    kinds: tuple[str, ...] | None


@dataclass
class Told:
    """What the model knows of a command."""

    node: str
    kind: str
    state: str
    expires_h: int
    reason: str | None = None
    was_sent: bool = False
    """Whether it was handed out."""
    was_queued: bool = True

    @property
    def is_open(self) -> bool:
        """Whether it may be handed out yet."""
        return self.state not in _ENDED


class LifeCommands:
    """Every command that was sent in one life of a deployment."""

    def __init__(self) -> None:
        """Have sent none."""
        self.known: dict[str, Told] = {}

    async def send(self, store: Database, node: str, known: Standing, nth: int, hours: int) -> str:
        """Tell a node something; return what became of it."""
        kind = KINDS[nth % len(KINDS)]
        order = CommandOrder(
            seen=SeenNode(UUID(node)), kind=kind, expires_in=timedelta(hours=LIFE_H)
        )
        reason = None
        if known.state not in _LIVE:
            reason = "node-state"
        elif known.revoked or hours >= known.expires_h:
            reason = "no-certificate"
        elif not _allows(known, kind):
            reason = "not-allowed"
        if reason is None:
            row = await send_command(store, ADA, order)
            self.known[str(row.id)] = Told(node, kind, "queued", hours + LIFE_H)
            return "sent"
        with pytest.raises(Denied) as denied:
            await send_command(store, ADA, order)
        command = str(denied.value).rpartition("(command ")[2].rstrip(")")
        self.known[command] = Told(
            node, kind, "refused", hours + LIFE_H, reason=reason, was_queued=False
        )
        return "denied"

    async def fetch(
        self, bench: Bench, node: str, known: Standing, hours: int, *, reports: bool
    ) -> list[str]:
        """Let a node ask, and perhaps say that it has done all that it was handed; return what happened."""
        mine = {name: one for name, one in self.known.items() if one.node == node}
        said = [
            name for name, one in mine.items() if reports and one.was_sent and one.state != "done"
        ]
        rows = [Report(id=name, result="done", exit_status=0) for name in said]
        [answer] = await told(bench, fetch(bench, known.node, reports=rows))
        if known.state not in _LIVE or known.revoked or hours >= known.expires_h:
            assert answer.outcome == "refused", (answer, known)
            if known.state in _LIVE:
                return []
            return self._end(mine, "node-state")
        expected, happened = self._handed(mine, said, known, hours)
        known.state = "active"
        commands = commands_in(bench, answer)
        assert [command.id for command in commands] == expected
        assert all(command.node_id == node for command in commands)
        return happened

    def _handed(
        self, mine: dict[str, Told], said: Sequence[str], known: Standing, hours: int
    ) -> tuple[list[str], list[str]]:
        """Return which commands are handed out, and what happened to any."""
        happened: list[str] = []
        expected: list[str] = []
        for name in sorted(mine):
            one = mine[name]
            if name in said:
                one.state, one.reason = "done", None
                happened.append("done")
            elif not one.is_open:
                continue
            elif not _allows(known, one.kind):
                happened += self._end({name: one}, "not-allowed")
            elif hours < one.expires_h:
                if one.state == "queued":
                    happened.append("handed out")
                one.state, one.was_sent = "dispatched", True
                expected.append(name)
        return expected, happened

    @staticmethod
    def _end(mine: dict[str, Told], reason: str) -> list[str]:
        ended = [one for one in mine.values() if one.is_open]
        for one in ended:
            one.state, one.reason = "refused", reason
        return [f"stopped: {reason}"] * len(ended)

    async def cancel(self, store: Database, nth: int) -> str | None:
        """Take a command back, whatever became of it; return what happened."""
        if not self.known:
            return None
        name = sorted(self.known)[nth % len(self.known)]
        one = self.known[name]
        if not one.is_open:
            with pytest.raises(Conflict):
                await cancel_command(store, ADA, UUID(name))
            return None
        await cancel_command(store, ADA, UUID(name))
        one.state = "cancelled"
        return "cancelled"

    async def check(self, bench: Bench) -> None:
        """Fail unless the rows are those of the model."""
        rows = await bench.fetch("SELECT id::text, state, reason, dispatched_at FROM node_commands")
        found = {row[0]: (row[1], row[2], row[3] is not None) for row in rows}
        assert found == {
            name: (one.state, one.reason, one.was_sent) for name, one in self.known.items()
        }

    async def check_events(self, bench: Bench) -> None:
        """Fail unless each command has one event of each thing that happened to it."""
        rows = await bench.fetch(
            "SELECT convert_from(value, 'UTF8')::jsonb ->> 'commandId', type FROM journal"
            " WHERE type LIKE 'node.command.%'"
        )
        found = Counter((row[0], row[1].removeprefix("node.command.")) for row in rows)
        for name, one in self.known.items():
            assert found[name, "enqueued"] == one.was_queued
            assert found[name, "dispatched"] == one.was_sent
            assert found[name, "finished"] == (one.state == "done")
            if not one.was_sent:
                assert found[name, "refused"] == (one.state == "refused")


def _allows(known: Standing, kind: str) -> bool:
    return known.kinds is None or kind.startswith("diag.")
