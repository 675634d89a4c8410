"""What requests for commands write: rows, nodes that become active, and events for the journal."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from watchword.handlers.command_events import command_event
from watchword.handlers.join.deciding import Effects
from watchword.handlers.join.outcomes import Outcomes
from watchword.handlers.join.ports import Session
from watchword.handlers.journal import Entry
from watchword.handlers.node_events import Change, as_changed, node_changed
from watchword.handlers.rows import CommandRow
from watchword.schemas.events import CommandEventType

_FIRST = "it has asked for commands"


async def write_commands(
    session: Session, effects: Effects, outcomes: Outcomes, now: datetime
) -> list[Entry]:
    """Write what a batch did with commands, whose nodes are locked; return what the journal is told."""
    entries: list[Entry] = []
    changed: list[CommandRow] = []
    sent: dict[UUID, bytes] = {}
    activated: list[UUID] = []
    unseen = Change(f"worker:{outcomes.worker}", "", outcomes.source, now)
    for candidate, fetch in effects.fetched:
        worker = replace(unseen, traceparent=candidate.incoming.traceparent)
        node, done = fetch.known.node, fetch.dispatch
        node_itself = replace(worker, who=f"node:{node.id}")
        if fetch.stopped is None and node.state == "adopting":
            activated.append(node.id)
            change = replace(node_itself, why=_FIRST)
            entries.append(node_changed("node.activated", as_changed(node), "active", change))
        request_id = candidate.question.request_id
        happened: tuple[tuple[CommandEventType, list[CommandRow], Change], ...] = (
            ("node.command.finished", done.finished, replace(node_itself, why="reported")),
            ("node.command.refused", done.refused, worker),
            ("node.command.dispatched", done.dispatched, replace(node_itself, why="asked for")),
        )
        for event_type, rows, change in happened:
            for row in rows:
                said = replace(change, why=change.why or f"at dispatch: {row.reason}")
                entries.append(command_event(event_type, row, said, request_id=request_id))
        changed += done.changed
        sent |= {one.id: candidate.digest for one in done.sent}
    if activated:
        await session.activate(sorted(activated), now, _FIRST)
    if changed or sent:
        await session.change_commands(changed, sent)
    return entries
