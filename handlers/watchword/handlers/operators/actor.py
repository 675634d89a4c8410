"""Who acts, why, and the record of it: audit row and journal entry, in the act's own transaction."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from watchword.handlers.errors import BadArgument
from watchword.handlers.journal import Entry, entry, new_event_id
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.store import journal, operators
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.rows import as_row
from watchword.schemas.events import Recorded
from watchword.schemas.times import rfc3339

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_WHO = 200
_MAX_WHY = 1000


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts and why, for the audit log; `cluster` names the deployment in the event's source.

    Raises:
        BadArgument: `who` is empty or too long, or a text has control characters.
    """

    who: str
    why: str = ""
    cluster: str = "watchword"
    kinds: frozenset[str] = BUILT_IN
    """The registered kinds of commands of the deployment that they act in."""

    def __post_init__(self) -> None:
        """Check what goes into the audit log."""
        if not self.who or len(self.who) > _MAX_WHO or _CONTROL.search(self.who):
            message = f"who acts: 1 to {_MAX_WHO} characters, no control characters"
            raise BadArgument(message)
        if len(self.why) > _MAX_WHY or _CONTROL.search(self.why):
            message = f"why: at most {_MAX_WHY} characters, no control characters"
            raise BadArgument(message)


@dataclass(frozen=True, slots=True)
class Act:
    """What happened to one thing. `row` is the table row as it is now, or was when it was deleted."""

    type: str
    """The event's type, such as `token.created`; the audit log's action."""
    tenant: str
    target: str
    """The thing's id: the key of its entries in the journal."""
    row: dict[str, Any]
    detail: dict[str, Any]
    """What the event and the audit row tell. Never a secret or its hash."""


async def record(connection: Connection, actor: Actor, act: Act, now: datetime) -> None:
    """Audit and journal an act: the last two statements of its transaction."""
    await record_all(connection, actor, [act], now)


async def record_all(
    connection: Connection, actor: Actor, acts: Sequence[Act], now: datetime
) -> None:
    """Audit and journal acts of one transaction, in their order; the journal last."""
    for act in acts:
        await operators.audit(
            connection,
            at=now,
            who=actor.who,
            action=act.type,
            target=act.target,
            why=actor.why,
            detail=act.detail,
        )
    await journal.append(connection, [act_entry(actor, act, now) for act in acts])


def act_entry(actor: Actor, act: Act, now: datetime) -> Entry:
    """Return the journal's entry of an act."""
    event_id = new_event_id()
    event = Recorded(
        id=str(event_id),
        type=act.type,
        time=rfc3339(now),
        tenant=act.tenant,
        detail=act.detail,
        who=actor.who,
        why=actor.why,
    )
    return entry(
        event,
        event_id=event_id,
        occurred_at=now,
        key=act.target.encode(),
        source=f"/watchword/{actor.cluster}/operator",
        subject=f"{act.type.partition('.')[0]}/{act.target}",
        topic=None,
        private={"row": as_row(act.row)},
    )
