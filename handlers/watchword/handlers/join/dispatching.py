"""What becomes of a node's commands when it asks for them: a pure function, under the locks.

Each command is checked again, against the certificate row that is in force now; what may not be handed out
any more is refused, and an expired one is left to the keeper. A command is handed out again with every
request until the node has said what became of it: the node runs each id once.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from watchword.handlers.kinds import permits
from watchword.handlers.rows import CommandRow, CommandState, LockedCommand, SentCommand
from watchword.schemas.canonical import b64
from watchword.schemas.commands import MAX_SENT, MAX_SENT_BYTES, Command, Report
from watchword.schemas.times import rfc3339


@dataclass(slots=True)
class Dispatch:
    """The rows as they are afterwards, by what happened to them, and what the node is told."""

    finished: list[CommandRow] = field(default_factory=list[CommandRow])
    refused: list[CommandRow] = field(default_factory=list[CommandRow])
    dispatched: list[CommandRow] = field(default_factory=list[CommandRow])
    """Handed out for the first time."""
    sent: list[SentCommand] = field(default_factory=list[SentCommand])
    """All that is handed out now."""
    more: bool = False
    """Whether there was no room for all."""

    @property
    def changed(self) -> list[CommandRow]:
        """Every row that is another one now."""
        return [*self.finished, *self.refused, *self.dispatched]


def dispatch(
    locked: Sequence[LockedCommand],
    reports: Sequence[Report],
    registered: Collection[str],
    now: datetime,
    *,
    is_live: bool,
) -> Dispatch:
    """Return what happens to the commands of one node, in their order."""
    done = Dispatch()
    reported = {report.id: report for report in reports}
    room = MAX_SENT_BYTES
    for one in locked:
        row = one.row
        report = reported.get(str(row.id))
        if report is not None and _counts(row):
            done.finished.append(_finished(row, report, now))
            continue
        if row.ended_at is not None:
            continue
        if (fault := _fault(one, registered, is_live=is_live)) is not None:
            done.refused.append(_ended(row, "refused", fault, now))
            continue
        if row.expires_at <= now or one.payload is None or one.serial is None:
            continue
        if len(done.sent) >= MAX_SENT or len(one.payload) > room:
            done.more = True
            break
        room -= len(one.payload)
        done.sent.append(
            SentCommand(
                row.id,
                row.node_id,
                row.kind,
                row.expires_at,
                one.payload,
                one.serial,
                one.allowed_kinds,
            )
        )
        if row.state == "queued":
            sent = replace(row, state="dispatched", version=row.version + 1, dispatched_at=now)
            done.dispatched.append(replace(sent, certificate_serial=one.serial))
    return done


def still_allowed(sent: Sequence[SentCommand], registered: Collection[str]) -> list[SentCommand]:
    """Return what may be said again in answer to the same request."""
    return [one for one in sent if one.kind in registered and permits(one.allowed_kinds, one.kind)]


def as_command(sent: SentCommand) -> Command:
    """Return what is signed: of the row and the certificate alone, so it is the same each time."""
    return Command(
        id=str(sent.id),
        node_id=str(sent.node_id),
        certificate_serial=sent.serial.hex(),
        kind=sent.kind,
        payload=b64(sent.payload),
        not_after=rfc3339(sent.expires_at),
    )


def _counts(row: CommandRow) -> bool:
    """Tell whether a node can have run this, and has not said so yet: also what was cancelled or expired meanwhile."""
    return row.dispatched_at is not None and row.state not in ("done", "failed")


def _finished(row: CommandRow, report: Report, now: datetime) -> CommandRow:
    is_done = report.result == "done"
    ended = _ended(row, "done", None, now)
    if not is_done:
        ended = _ended(row, "failed", report.result, now)
    return replace(ended, exit_status=report.exit_status)


def _fault(one: LockedCommand, registered: Collection[str], *, is_live: bool) -> str | None:
    """Return why a command may not be handed out, by what is in force now."""
    if not is_live:
        return "node-state"
    if one.row.kind not in registered:
        return "not-registered"
    if one.serial is None:
        return "no-certificate"
    return None if permits(one.allowed_kinds, one.row.kind) else "not-allowed"


def _ended(row: CommandRow, state: CommandState, reason: str | None, now: datetime) -> CommandRow:
    return replace(row, state=state, reason=reason, version=row.version + 1, ended_at=now)
