"""`watchword relay` runs a relay; `watchword relay park` sets one bad event aside."""

import os
from dataclasses import asdict
from typing import Annotated

from cyclopts import App, Parameter

from watchword.handlers.errors import BadArgument
from watchword.streams import failpoints
from watchword.streams.cli.acting import ACTING, Acting, operating
from watchword.streams.cli.options import CONFIGURED, SHOWN, Configured, Shown
from watchword.streams.cli.output import say, show_rows

app = App(name="relay", help="Carry the journal's events to Kafka.")


@app.default
async def run(*, options: Configured = CONFIGURED) -> None:
    """Publish the journal's events, until SIGTERM or Ctrl-C; any number of relays share the work."""
    from watchword.streams.wiring.relay import run as body  # noqa: PLC0415 - only what this needs

    settings = options.settings("relay")
    failpoints.load(os.environ)
    await body(settings)


@app.command
async def park(
    event: Annotated[str, Parameter(help="The event's id (`ce_id`), a UUID.")],
    /,
    *,
    options: Acting = ACTING,
) -> None:
    """Have relays pass over one event for good: consumers never get it. Needs --why."""
    from watchword.handlers.operators.nodes import node_id  # noqa: PLC0415 - only what this needs
    from watchword.handlers.store import parking  # noqa: PLC0415 - as above

    if not options.why:
        message = "--why: say how consumers learn of this event"
        raise BadArgument(message)
    async with operating(options) as (settings, database):
        actor = options.actor(settings)
        parked = await parking.park(database, node_id(event), who=actor.who, why=actor.why)
    say(f"event {event} is parked" if parked else f"event {event} was parked before")


@app.command
async def parked(*, options: Shown = SHOWN) -> None:
    """List the events that were parked."""
    from watchword.handlers.store import parking  # noqa: PLC0415 - only what this needs

    async with operating(options) as (_, database):
        rows = [asdict(row) for row in await parking.parked(database)]
    show_rows(rows, ("event_id", "seq", "shard", "parked_at", "who", "why"), options.form)
