"""Nodes, looked up."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from watchword.handlers.attestor import Subject
from watchword.handlers.errors import BadArgument, NotFound
from watchword.handlers.store import lookups, operators
from watchword.handlers.store.connection import Database
from watchword.handlers.store.lookups import Name
from watchword.handlers.store.operators import Row

STATES = ("adopting", "active", "evicted", "banned", "retired", "deleted")
MAX_PAGE = 1000

_MAX_NAME = 512
_HEX = re.compile(r"[0-9a-f]+")
_LEAST_DIGITS = 4
_UUID_DIGITS = 32
_SUBJECT_KINDS = (
    "ak",
    "certificate",
    "cloud-account",
    "cloud-instance",
    "ek",
    "ek-key",
    "image",
    "machine",
    "node-key",
    "site-key",
)
"""Kinds of proven subjects that are found without being named; others are looked up as `kind value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter:
    """Which nodes; None narrows nothing. `after` is the id that the page before ended with."""

    tenant: str | None = None
    pool: str | None = None
    site: str | None = None
    role: str | None = None
    state: str | None = None
    after: str | None = None
    expiring_in: timedelta | None = None
    """Adopting and active ones whose current certificate ends within this, or has ended."""
    named: str | None = None
    """What the node is known by: the beginning of its id, a proven subject, a key, a token, a serial, a CSR."""


async def list_nodes(database: Database, wanted: NodeFilter, *, limit: int = 100) -> list[Row]:
    """Return a page of nodes by id, oldest first (the ids are of time).

    Raises:
        BadArgument: a state that there is not, an id that is none, or a page that is too long.
    """
    if wanted.state is not None and wanted.state not in STATES:
        message = f"state: one of {', '.join(STATES)}"
        raise BadArgument(message)
    if not 0 < limit <= MAX_PAGE:
        message = f"limit: 1 to {MAX_PAGE}"
        raise BadArgument(message)
    after = None if wanted.after is None else node_id(wanted.after)
    name = None if wanted.named is None else name_of(wanted.named)
    async with database.transaction() as connection:
        among = None if name is None else await lookups.nodes_known_by(connection, name)
        return await operators.list_nodes(
            connection,
            among=among,
            tenant=wanted.tenant,
            pool=wanted.pool,
            site=wanted.site,
            role=wanted.role,
            state=wanted.state,
            after=after,
            expiring_in=wanted.expiring_in,
            limit=limit,
        )


async def find_nodes(
    database: Database, wanted: NodeFilter, *, states: Sequence[str], at_most: int
) -> list[UUID]:
    """Return the ids of all nodes that a filter finds in one of these states.

    Raises:
        BadArgument: a state that there is not, or more than `at_most` are found.
    """
    if wanted.state is not None and wanted.state not in STATES:
        message = f"state: one of {', '.join(STATES)}"
        raise BadArgument(message)
    async with database.transaction() as connection:
        found = await operators.find_nodes(
            connection,
            tenant=wanted.tenant,
            pool=wanted.pool,
            site=wanted.site,
            role=wanted.role,
            states=[one for one in states if wanted.state in (None, one)],
            limit=at_most + 1,
        )
    if len(found) > at_most:
        message = f"more than {at_most} nodes: narrow the filters"
        raise BadArgument(message)
    return found


async def show_node(database: Database, node: str) -> Row:
    """Return a node with `certificates`, `bindings`, `subjects` and `audit`, newest first.

    Raises:
        BadArgument: that is no node's id.
        NotFound: there is none of that id.
    """
    async with database.transaction(isolation="repeatable_read") as connection:
        found = await operators.node(connection, node_id(node))
    if found is None:
        message = f"no node {node}"
        raise NotFound(message)
    return found


def name_of(text: str) -> Name:
    """Return the forms in which tables have what an operator typed to find a machine; raises `BadArgument`."""
    text = text.strip()
    if not 0 < len(text) <= _MAX_NAME or not text.isprintable():
        message = f"a node is looked up by 1 to {_MAX_NAME} printable characters"
        raise BadArgument(message)
    digits = text.replace("-", "").replace(":", "").lower()
    lowest = highest = digest = None
    if _HEX.fullmatch(digits):
        if _LEAST_DIGITS <= len(digits) <= _UUID_DIGITS:
            lowest = UUID(digits.ljust(_UUID_DIGITS, "0"))
            highest = UUID(digits.ljust(_UUID_DIGITS, "f"))
        digest = bytes.fromhex(digits) if len(digits) % 2 == 0 else None
    kind, space, value = text.partition(" ")
    subjects = [Subject(each, text).digest for each in _SUBJECT_KINDS]
    if space:
        subjects.append(Subject(kind, value).digest)
    return Name(text=text, lowest=lowest, highest=highest, subjects=subjects, digest=digest)


def node_id(text: str) -> UUID:
    """Return the id of a node or an event; raises `BadArgument`."""
    try:
        return UUID(text)
    except ValueError:
        message = f"an id is a UUID, not {text[:64]!r}"
        raise BadArgument(message) from None
