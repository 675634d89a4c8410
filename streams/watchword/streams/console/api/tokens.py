"""Join tokens."""

import json
from datetime import timedelta
from typing import Annotated

from pydantic import Field, StringConstraints

from watchword.handlers.operators.tokens import MAX_USES, TokenOrder
from watchword.handlers.store.operators import Row
from watchword.schemas.ids import Role
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
from watchword.streams.console.api.shapes import NEW_TOKEN, REVOKED_TOKEN, TOKEN
from watchword.streams.console.patterns import PUBLIC_ID
from watchword.streams.result_json import Verbatim

_LONGEST_S = 10 * 366 * 86_400


class Which(Given):
    """Which tokens, and which page."""

    tenant: Short | None = None
    all: bool = False
    after: Annotated[str, StringConstraints(pattern=PUBLIC_ID)] | None = None
    limit: Limit = 100


class NewToken(Given):
    """What a token lets a machine do."""

    tenant: Short
    pool: Short
    site: Short | None = None
    role: Role = "node"
    uses: Annotated[int, Field(ge=1, le=MAX_USES)] = 1
    expires_in_s: Annotated[
        int | None, Field(ge=1, le=_LONGEST_S, description="null never expires")
    ] = 86_400
    expect: Annotated[dict[Short, Short], Field(max_length=16, default_factory=dict)]
    allow_reclaim: bool = False
    allowed_kinds: Annotated[
        list[Short] | None,
        Field(max_length=100, default_factory=list, description="null is unrestricted"),
    ]
    why: Why = ""


class Revocation(Given):
    """Why."""

    why: Why = ""


async def _list(asked: Asked, given: Which) -> Page:
    rows = await asked.desk.list_tokens(given.tenant, given.after, given.limit, spent_too=given.all)
    return page([_row(row) for row in rows], given.limit)


async def _create(asked: Asked, given: NewToken) -> Row:
    life = given.expires_in_s
    order = TokenOrder(
        tenant=given.tenant,
        pool=given.pool,
        site=given.site,
        role=given.role,
        uses=given.uses,
        expires_in=None if life is None else timedelta(seconds=life),
        expect=dict(given.expect),
        allow_reclaim=given.allow_reclaim,
        allowed_kinds=None if given.allowed_kinds is None else tuple(given.allowed_kinds),
    )
    created = await asked.desk.create_token(order, given.why)
    return _row(created.row) | {"token": created.text}


async def _revoke(asked: Asked, given: Revocation) -> Row:
    return _row(await asked.desk.revoke_token(asked.path["id"], given.why))


def _row(row: Row) -> Row:
    return row | {"expect": Verbatim(json.loads(row["expect"]))}


OPERATIONS = (
    Operation(
        id="listTokens",
        method="GET",
        path="/tokens",
        summary="Join tokens, never their secrets",
        role="viewer",
        answers=TOKEN,
        is_page=True,
        given=Which,
        run=_list,
    ),
    Operation(
        id="createToken",
        method="POST",
        path="/tokens",
        summary="Make a token; `token` in the answer is shown this once",
        role="admin",
        answers=NEW_TOKEN,
        given=NewToken,
        run=_create,
    ),
    Operation(
        id="revokeToken",
        method="POST",
        path="/tokens/{id}/revoke",
        summary="Let nobody join with a token any more",
        role="admin",
        answers=REVOKED_TOKEN,
        given=Revocation,
        run=_revoke,
    ),
)
