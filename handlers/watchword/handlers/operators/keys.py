"""Keys are files; who changed them, and why, is in the audit log and the journal like everything else."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from watchword.handlers.errors import Conflict
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.store import key_holders, operators
from watchword.handlers.store.connection import Database
from watchword.schemas.ids import ROOT

Step = Literal["prepared", "activated", "retired"]

T = TypeVar("T")


async def change_keys(
    database: Database,
    actor: Actor,
    kind: str,
    step: Step,
    change: Callable[[], tuple[T, dict[str, Any]]],
) -> T:
    """Do `change`, record it as `trust.rotated`, and return what it returns.

    The files are changed before the record is written, since a key has no name before; both are within one
    transaction, which is opened first: a database that is away means that nothing is changed.

    Args:
        database: Where the audit log and the journal are.
        actor: Who and why.
        kind: Of keys.
        step: What happens to one of them.
        change: Changes the files; returns its result, and what the record tells: names, never a key.
    """
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        result, told = change()
        act = Act("trust.rotated", ROOT, f"keys/{kind}", {}, {"kind": kind, "step": step, **told})
        await record(connection, actor, act, now)
    return result


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
