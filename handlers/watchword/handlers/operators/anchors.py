"""Anchors of attestors are files; who changed them, and why, is in the audit log like everything else."""

from collections.abc import Callable, Mapping
from typing import Any

from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.store import operators
from watchword.handlers.store.connection import Database
from watchword.schemas.ids import ROOT


async def change_anchors(
    database: Database,
    actor: Actor,
    event_type: str,
    detail: Mapping[str, Any],
    change: Callable[[], None],
) -> None:
    """Do `change`, and record it: a change that fails leaves no record, and no record means no change.

    Args:
        database: Where the audit log is.
        actor: Who and why.
        event_type: `anchors.imported` or `anchors.reloaded`.
        detail: What the record tells: names, numbers, digests.
        change: Writes the files, the manifest last; what it raises undoes the record.
    """
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        act = Act(event_type, ROOT, "cloud-iid", {}, dict(detail))
        await record(connection, actor, act, now)
        change()
