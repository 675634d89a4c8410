"""Images whose machines may join: made, listed, revoked. The secret is shown once, to whoever made it."""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from watchword.handlers.attestors.image.evidence import new_image
from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.actor import Act, Actor, record
from watchword.handlers.operators.grants import Grant, check_expect, check_limit
from watchword.handlers.store import anchor_rows, operators
from watchword.handlers.store.anchor_rows import ListFilter
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Row
from watchword.schemas.times import rfc3339

SecondFact = Literal["approval", "unsafe_single_factor"]
"""What is asked for beyond the secret: an operator's word; or nothing, in so many words."""

_ID = re.compile(r"[a-z0-9]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOrder:
    """What an image's secret lets machines do. `expires_in` None never expires."""

    grant: Grant
    second_fact: SecondFact = "approval"
    once_per_machine: bool = False
    expect: dict[str, str] = field(default_factory=dict[str, str])
    expires_in: timedelta | None = timedelta(days=90)

    def check(self) -> None:
        """Raise `BadArgument` for the first thing that is wrong."""
        self.grant.check()
        if self.second_fact not in get_args(SecondFact):
            message = f"second fact: one of {', '.join(get_args(SecondFact))}"
            raise BadArgument(message)
        if self.expires_in is not None and self.expires_in <= timedelta(0):
            message = "an image that has expired already is of no use"
            raise BadArgument(message)
        if "node" in self.expect:
            message = "expect node: an image is for many machines and names none"
            raise BadArgument(message)
        check_expect(self.expect)


@dataclass(frozen=True, slots=True)
class CreatedImage:
    """An image's row and the text of its secret, which is nowhere else and does not show in `repr`."""

    row: Row
    text: str = field(repr=False)


async def create_image(database: Database, actor: Actor, order: ImageOrder) -> CreatedImage:
    """Make a secret of 256 random bits for an image and store its hash.

    Raises:
        BadArgument: the order makes no sense.
        NotFound: there is no such pool or site.
    """
    order.check()
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
    return CreatedImage(row, text)


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
    if not _ID.fullmatch(image_id):
        # Not repeated: whoever pastes a whole secret here pastes the secret.
        message = "an image's id is its 16 characters between the two dots"
        raise BadArgument(message)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.revoke_image(connection, image_id, now)
        await record(connection, actor, _act("image.revoked", row), now)
    return row


def _act(event_type: str, row: Row) -> Act:
    expires_at = row["expires_at"]
    detail = {
        "pool": row["pool"],
        "site": row["site"],
        "role": row["role"],
        "secondFact": row["second_fact"],
        "oncePerMachine": row["once_per_machine"],
        "expiresAt": None if expires_at is None else rfc3339(expires_at),
        "allowedKinds": row["allowed_kinds"],
    }
    return Act(event_type, row["tenant"], row["id"], row, detail)
