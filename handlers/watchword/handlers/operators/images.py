"""Images whose machines may join: made, listed, revoked. The secret is shown once, to whoever made it."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from watchword.handlers.attestors.image.evidence import asks_for, new_image
from watchword.handlers.errors import BadArgument
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.operators.grants import (
    Created,
    Grant,
    check_expect,
    check_life,
    check_limit,
    check_secret_id,
    granted,
)
from watchword.handlers.store import anchor_rows, operators
from watchword.handlers.store.anchor_rows import ListFilter
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Row
from watchword.schemas.ids import RESERVED_ATTESTOR_IDS

SECOND_FACTS = ("approval", "unsafe_single_factor")
"""What is asked for beyond the secret: an operator's word; or nothing, in so many words. A third is
`attestor:<id>`: another attestor's proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOrder:
    """What an image's secret lets machines do. `expires_in` None never expires."""

    grant: Grant
    second_fact: str = "approval"
    once_per_machine: bool = False
    expect: dict[str, str] = field(default_factory=dict[str, str])
    expires_in: timedelta | None = timedelta(days=90)

    def check(self, registered: Collection[str] = BUILT_IN) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        self.grant.check(registered)
        other = asks_for(self.second_fact)
        if other is None and self.second_fact not in SECOND_FACTS:
            message = f"second fact: one of {', '.join(SECOND_FACTS)}, or attestor:<id>"
            raise BadArgument(message)
        if other == "image" or other in RESERVED_ATTESTOR_IDS:
            message = f"second fact: {other} is no second attestor"
            raise BadArgument(message)
        check_life(self.expires_in, "an image")
        if "node" in self.expect:
            message = "expect node: an image is for many machines and names none"
            raise BadArgument(message)
        check_expect(self.expect)


async def create_image(database: Database, actor: Actor, order: ImageOrder) -> Created:
    """Make a secret of 256 random bits for an image and store its hash.

    Raises:
        BadArgument: the order makes no sense.
        NotFound: there is no such pool or site.
    """
    order.check(actor.kinds)
    image_id, text, secret_sha256 = new_image()
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.create_image(
            connection,
            image_id=image_id,
            secret_sha256=secret_sha256,
            place=order.grant.row(),
            second_fact=order.second_fact,
            once_per_machine=order.once_per_machine,
            expect=order.expect,
            expires_at=None if order.expires_in is None else now + order.expires_in,
            now=now,
            who=actor.who,
        )
        await record(connection, actor, _act("image.created", row), now)
    return Created(row, text)


async def list_images(database: Database, wanted: ListFilter) -> list[Row]:
    """Return a page of images by id, without their secrets' hashes; raises `BadArgument`."""
    check_limit(wanted.limit)
    async with database.transaction() as connection:
        return await anchor_rows.list_images(connection, wanted)


async def revoke_image(database: Database, actor: Actor, image_id: str) -> Row:
    """Let nobody join with this image's secret any more; nodes that did stay. Return its row.

    Raises:
        BadArgument: that is no image's id.
        NotFound: there is none of that id.
        Conflict: it was revoked before.
    """
    check_secret_id(image_id, "an image's")
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.revoke_image(connection, image_id, now)
        await record(connection, actor, _act("image.revoked", row), now)
    return row


def _act(event_type: str, row: Row) -> Act:
    detail = granted(row) | {
        "secondFact": row["second_fact"],
        "oncePerMachine": row["once_per_machine"],
    }
    return Act(event_type, row["tenant"], row["id"], row, detail)
