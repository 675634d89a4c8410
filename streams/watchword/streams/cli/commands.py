"""`watchword commands send|list|cancel`: what nodes are told to do."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument
from watchword.handlers.operators.commands import CommandOrder
from watchword.handlers.operators.nodes import node_id
from watchword.handlers.operators.standing import SeenNode
from watchword.handlers.rows import CommandRow
from watchword.handlers.store.commands import CommandFilter
from watchword.handlers.store.operators import Row
from watchword.schemas.commands import MAX_PAYLOAD_BYTES
from watchword.streams.cli.at_desk import (
    REACHING,
    REACHING_ACTING,
    Reaching,
    ReachingActing,
    at_desk,
)
from watchword.streams.cli.durations import duration
from watchword.streams.cli.output import say, show_one, show_rows

app = App(name="commands", help="Commands to nodes.")

_COLUMNS = ("id", "node_id", "kind", "state", "reason", "exit_status", "version", "expires_at", "enqueued_by")  # fmt: skip


@app.command
async def send(
    node: Annotated[str, Parameter(help="The node's id.")],
    kind: Annotated[str, Parameter(help="What to do: one of `watchword kinds list`.")],
    /,
    *,
    file: Annotated[
        Path | None, Parameter(help="What the handler gets on its standard input, at most 64 KiB.")
    ] = None,
    stdin: Annotated[
        bool, Parameter(help="Read that from standard input instead.", negative="")
    ] = False,
    expires_in: Annotated[
        str, Parameter(help="How long it waits for the node, such as 30m, 12h; at most 30d.")
    ] = "24h",
    version: Annotated[
        int | None,
        Parameter(help="The node's version that was seen: exit 4 if it has changed since."),
    ] = None,
    options: ReachingActing = REACHING_ACTING,
) -> None:
    """Let a command wait until the node asks for it; needs --why. Exit 5 if the node may not be told this kind.

    Without --file and --stdin its handler gets an empty standard input.
    """
    order = CommandOrder(
        seen=SeenNode(node_id(node), version),
        kind=kind,
        payload=_payload(file, stdin=stdin),
        expires_in=duration(expires_in),
    )
    async with at_desk(options) as desk:
        row = await desk.send_command(order, options.why)
    show_one(_shown(row), options.form)


@app.command(name="list")
async def list_(
    *,
    node: Annotated[str | None, Parameter(help="Only this node's.")] = None,
    tenant: Annotated[str | None, Parameter(help="Only this tenant's.")] = None,
    state: Annotated[
        str | None,
        Parameter(help="queued, dispatched, done, failed, refused, cancelled or expired."),
    ] = None,
    kind: Annotated[str | None, Parameter(help="Only of this kind.")] = None,
    after: Annotated[str | None, Parameter(help="The id that the page before ended with.")] = None,
    limit: Annotated[int, Parameter(help="Length of a page, at most 1000.")] = 100,
    options: Reaching = REACHING,
) -> None:
    """List commands by id, which is by age; filters compose. What they say is not shown."""
    wanted = CommandFilter(
        node=None if node is None else node_id(node),
        tenant=tenant,
        state=state,
        kind=kind,
        after=None if after is None else node_id(after),
    )
    async with at_desk(options) as desk:
        rows = [_shown(row) for row in await desk.list_commands(wanted, limit)]
    show_rows(rows, _COLUMNS, options.form)
    if len(rows) == limit:
        say(f"there may be more: --after {rows[-1]['id']}")


@app.command
async def cancel(
    command: Annotated[str, Parameter(help="The command's id.")],
    /,
    *,
    version: Annotated[
        int | None, Parameter(help="The version that was seen: exit 4 if it has changed since.")
    ] = None,
    options: ReachingActing = REACHING_ACTING,
) -> None:
    """Hand a command out no more; needs --why. Exit 4 if it has ended. One that was handed out may have been run."""
    async with at_desk(options) as desk:
        row = _shown(await desk.cancel_command(node_id(command), version, options.why))
    if row["dispatched_at"] is not None:
        say("it was handed out before, and may have been run")
    show_one(row, options.form)


def _shown(row: CommandRow | Row) -> Row:
    """Return what the database or a console's API has of a command."""
    return asdict(row) if isinstance(row, CommandRow) else row


def _payload(file: Path | None, *, stdin: bool) -> bytes:
    """Return what the command says; never from the arguments, which everybody on the machine can read."""
    if file is not None and stdin:
        message = "either --file or --stdin"
        raise BadArgument(message)
    if stdin:
        found = sys.stdin.buffer.read(MAX_PAYLOAD_BYTES + 1)
    elif file is not None:
        try:
            with file.open("rb") as opened:
                found = opened.read(MAX_PAYLOAD_BYTES + 1)
        except OSError as error:
            message = f"--file: {file}: {error.strerror or 'cannot be read'}"
            raise BadArgument(message) from None
    else:
        found = b""
    if len(found) > MAX_PAYLOAD_BYTES:
        message = f"at most {MAX_PAYLOAD_BYTES} bytes: have the handler fetch what is larger"
        raise BadArgument(message)
    return found
