"""Commands to nodes: sent, looked at, cancelled. What they say is given and never shown again."""

from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated
from uuid import UUID

from pydantic import Field

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.commands import LONGEST, CommandOrder
from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.rows import CommandState
from watchword.handlers.store.commands import CommandFilter
from watchword.handlers.store.operators import Row
from watchword.schemas.commands import MAX_PAYLOAD_BYTES
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
from watchword.streams.console.api.shapes import COMMAND

_MAX_BASE64 = (MAX_PAYLOAD_BYTES + 2) // 3 * 4

Version = Annotated[int | None, Field(ge=1, lt=2**31)]


class Which(Given):
    """Which commands, and which page."""

    node: UUID | None = None
    tenant: Short | None = None
    state: CommandState | None = None
    kind: Short | None = None
    after: UUID | None = None
    limit: Limit = 100

    def filter(self) -> CommandFilter:
        """Return it as the handlers take it."""
        return CommandFilter(
            node=self.node,
            tenant=self.tenant,
            state=self.state,
            kind=self.kind,
            after=self.after,
        )


class NewCommand(Given):
    """What a node is to do; with the node's version, only as it was seen."""

    node: UUID
    version: Version = None
    kind: Short
    payload: Annotated[
        str | None,
        Field(
            max_length=MAX_PAYLOAD_BYTES,
            repr=False,
            description=f"What its handler gets on standard input, as UTF-8: at most {MAX_PAYLOAD_BYTES} bytes",
        ),
    ] = None
    payload_base64: Annotated[
        str | None,
        Field(max_length=_MAX_BASE64, repr=False, description="The same as any bytes, instead"),
    ] = None
    expires_in_s: Annotated[int, Field(ge=1, le=int(LONGEST.total_seconds()))] = 86_400
    why: Why

    def said(self) -> bytes:
        """Return the payload; raises `BadArgument`, which does not repeat it."""
        if self.payload_base64 is None:
            return (self.payload or "").encode()
        if self.payload is not None:
            message = "either payload or payloadBase64"
            raise BadArgument(message)
        try:
            return b64decode(self.payload_base64, validate=True)
        except (NotBase64, ValueError):
            message = "payloadBase64: not base64"
            raise BadArgument(message) from None


class Cancellation(Given):
    """Why; with a version, only as it was seen."""

    version: Version = None
    why: Why


async def _list(asked: Asked, given: Which) -> Page:
    rows = await asked.desk.list_commands(given.filter(), given.limit)
    return page([asdict(row) for row in rows], given.limit)


async def _show(asked: Asked, given: Given) -> Row:
    del given
    return asdict(await asked.desk.show_command(node_id(asked.path["id"])))


async def _send(asked: Asked, given: NewCommand) -> Row:
    order = CommandOrder(
        seen=SeenNode(given.node, given.version),
        kind=given.kind,
        payload=given.said(),
        expires_in=timedelta(seconds=given.expires_in_s),
    )
    return asdict(await asked.desk.send_command(order, given.why))


async def _cancel(asked: Asked, given: Cancellation) -> Row:
    command = node_id(asked.path["id"])
    return asdict(await asked.desk.cancel_command(command, given.version, given.why))


OPERATIONS = (
    Operation(
        id="listCommands",
        method="GET",
        path="/commands",
        summary="Commands by id, which is by age; never what they say",
        role="viewer",
        answers=COMMAND,
        is_page=True,
        given=Which,
        run=_list,
    ),
    Operation(
        id="showCommand",
        method="GET",
        path="/commands/{id}",
        summary="A command and what became of it; never what it says",
        role="viewer",
        answers=COMMAND,
        run=_show,
    ),
    Operation(
        id="sendCommand",
        method="POST",
        path="/commands",
        summary="Let a command wait until its node asks; 403 if the node may not be told this kind, which is on record then",
        role="admin",
        answers=COMMAND,
        given=NewCommand,
        run=_send,
    ),
    Operation(
        id="cancelCommand",
        method="POST",
        path="/commands/{id}/cancel",
        summary="Hand a command out no more; one that was handed out may have been run",
        role="admin",
        answers=COMMAND,
        given=Cancellation,
        run=_cancel,
    ),
)
