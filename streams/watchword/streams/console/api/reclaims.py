"""Letting a machine have its node back, once."""

from datetime import timedelta
from typing import Annotated
from uuid import UUID

from pydantic import Field

from watchword.handlers.attestor import Subject
from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.reclaims import LONGEST, ReclaimOrder
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
from watchword.streams.console.api.shapes import RECLAIM


class Which(Given):
    """Which grants of a node, and which page."""

    all: bool = False
    after: UUID | None = None
    limit: Limit = 100


class NewGrant(Given):
    """By which attestor what has to be proved."""

    attestor: Short
    kind: Short
    value: Short
    expires_in_s: Annotated[int, Field(ge=1, le=int(LONGEST.total_seconds()))] = 86_400
    why: Why


class Revocation(Given):
    """Why."""

    why: Why = ""


async def _list(asked: Asked, given: Which) -> Page:
    node = node_id(asked.path["id"])
    rows = await asked.desk.list_reclaims(node, given.after, given.limit, all_too=given.all)
    return page(rows, given.limit)


async def _grant(asked: Asked, given: NewGrant) -> Row:
    order = ReclaimOrder(
        node=node_id(asked.path["id"]),
        attestor=given.attestor,
        subject=Subject(given.kind, given.value),
        expires_in=timedelta(seconds=given.expires_in_s),
    )
    return await asked.desk.grant_reclaim(order, given.why)


async def _revoke(asked: Asked, given: Revocation) -> Row:
    return await asked.desk.revoke_reclaim(node_id(asked.path["id"]), given.why)


OPERATIONS = (
    Operation(
        id="listReclaims",
        method="GET",
        path="/nodes/{id}/reclaims",
        summary="Grants that let a machine have this node back",
        role="viewer",
        answers=RECLAIM,
        is_page=True,
        given=Which,
        run=_list,
    ),
    Operation(
        id="grantReclaim",
        method="POST",
        path="/nodes/{id}/reclaims",
        summary="Let whoever proves this become that node, once",
        role="admin",
        answers=RECLAIM,
        given=NewGrant,
        run=_grant,
    ),
    Operation(
        id="revokeReclaim",
        method="POST",
        path="/reclaims/{id}/revoke",
        summary="Take a grant back that was not used",
        role="admin",
        answers=RECLAIM,
        given=Revocation,
        run=_revoke,
    ),
)
