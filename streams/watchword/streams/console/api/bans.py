"""What evidence may not prove. Bans reach into every tenant: they are for operators of the whole deployment."""

from typing import Annotated

from pydantic import Field, StringConstraints

from watchword.handlers.attestor import Subject
from watchword.handlers.operators.bans import MAX_SUBJECTS, Banned
from watchword.handlers.store.operators import Row
from watchword.streams.console.api.operation import (
    Asked,
    Given,
    Limit,
    Operation,
    Page,
    Short,
    Why,
    page,
)
from watchword.streams.console.api.shapes import BAN, BANNED, CHANGED_NODE, DECIDED, Shape
from watchword.streams.console.patterns import SHA256


class Which(Given):
    """Which bans, and which page."""

    kind: Short | None = None
    after: Annotated[str, StringConstraints(pattern=SHA256)] | None = None
    limit: Limit = 100


class NamedSubject(Given):
    """What evidence proves."""

    kind: Short
    value: Short


class Subjects(Given):
    """Which subjects, and why."""

    subjects: Annotated[list[NamedSubject], Field(min_length=1, max_length=MAX_SUBJECTS)]
    why: Why

    def named(self) -> list[Subject]:
        """Return the subjects as the handlers take them."""
        return [Subject(one.kind, one.value) for one in self.subjects]


async def _list(asked: Asked, given: Which) -> Page:
    after = None if given.after is None else bytes.fromhex(given.after)
    return page(await asked.desk.list_bans(given.kind, after, given.limit), given.limit, "subject")


async def _add(asked: Asked, given: Subjects) -> Row:
    return _row(await asked.desk.add_bans(given.named(), given.why))


async def _remove(asked: Asked, given: Subjects) -> Row:
    return _row(await asked.desk.remove_bans(given.named(), given.why))


def _row(done: Banned) -> Row:
    def only(rows: "list[Row]", shape: Shape) -> list[Row]:
        return [{name: row[name] for name in shape} for row in rows]

    return {
        "bans": only(list(done.bans), BAN),
        "nodes": only(list(done.nodes), CHANGED_NODE),
        "requests": only(list(done.requests), DECIDED),
    }


OPERATIONS = (
    Operation(
        id="listBans",
        method="GET",
        path="/bans",
        summary="Bans",
        role="viewer",
        answers=BAN,
        is_page=True,
        given=Which,
        run=_list,
    ),
    Operation(
        id="addBans",
        method="POST",
        path="/bans/add",
        summary="Keep out whoever proves these, under whatever node id",
        role="admin",
        answers=BANNED,
        given=Subjects,
        run=_add,
    ),
    Operation(
        id="removeBans",
        method="POST",
        path="/bans/remove",
        summary="End bans; nodes that no other ban holds are evicted then",
        role="admin",
        answers=BANNED,
        given=Subjects,
        run=_remove,
    ),
)
