"""Keys are files; who changed them, and why, is in the audit log, the journal and on `node.events` like everything else."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from watchword.handlers.errors import Conflict
from watchword.handlers.journal import Entry, entry, new_event_id
from watchword.handlers.operators.actor import Actor
from watchword.handlers.store import journal, key_holders, operators
from watchword.handlers.store.connection import Database
from watchword.schemas.events import TrustRotated
from watchword.schemas.ids import ROOT
from watchword.schemas.times import rfc3339
from watchword.schemas.topics import NODE_EVENTS

Kind = Literal["signing", "decryption", "challenge", "ca"]
Step = Literal["prepared", "activated", "retired"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What happened to a key: names, never a key. See `schemas.events.TrustRotated`."""

    kid: str
    retired: str | None = None
    compromised: bool = False
    in_hsm: bool = False


async def change_keys(
    database: Database,
    actor: Actor,
    kind: Kind,
    step: Step,
    change: Callable[[], tuple[T, Changed]],
) -> T:
    """Do `change`, record it as `trust.rotated`, and return what it returns.

    The files are changed before the record is written, since a key has no name before; both are within one
    transaction, which is opened first: a database that is away means that nothing is changed.

    Args:
        database: Where the audit log and the journal are.
        actor: Who and why.
        kind: Of keys.
        step: What happens to one of them.
        change: Changes the files; returns its result, and what the record tells.
    """
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        result, changed = change()
        made = _entry(actor, kind, step, changed, now)
        await operators.audit(
            connection,
            at=now,
            who=actor.who,
            action=made.type,
            target=made.key.decode(),
            why=actor.why,
            detail={
                "kind": kind,
                "step": step,
                "kid": changed.kid,
                "retired": changed.retired,
                "compromised": changed.compromised,
                "inHsm": changed.in_hsm,
            },
        )
        await journal.append(connection, [made])
    return result


def _entry(actor: Actor, kind: Kind, step: Step, changed: Changed, now: datetime) -> Entry:
    event_id = new_event_id()
    event = TrustRotated(
        id=str(event_id),
        time=rfc3339(now),
        tenant=ROOT,
        kind=kind,
        step=step,
        kid=changed.kid,
        retired=changed.retired,
        compromised=changed.compromised,
        in_hsm=changed.in_hsm,
        who=actor.who,
        why=actor.why,
    )
    return entry(
        event,
        event_id=event_id,
        occurred_at=now,
        key=f"keys/{kind}".encode(),
        source=f"/watchword/{actor.cluster}/operator",
        subject=f"trust/keys/{kind}",
        topic=NODE_EVENTS,
        private={"row": {}},
    )


async def check_held(database: Database, kid: str) -> None:
    """Return only if every worker that is there has loaded a key; raises `Conflict`."""
    async with database.transaction() as connection:
        lacking = await key_holders.lacking(connection, kid)
    if lacking:
        message = f"not loaded yet by {', '.join(lacking)}: key {kid} would not be known there"
        raise Conflict(message)


async def count_valid(database: Database, key_identifier: bytes) -> int:
    """Return how many certificates of a CA are still valid."""
    async with database.transaction() as connection:
        return await key_holders.valid_certificates(connection, key_identifier)
