"""`watchword topics plan|apply`."""

from cyclopts import App

from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_rows
from watchword.streams.settings import Settings
from watchword.streams.topics import admin
from watchword.streams.topics.plan import Step, Wish
from watchword.streams.wiring.connections import kafka_connection

app = App(name="topics", help="The topics in Kafka.")


def wish(settings: Settings) -> Wish:
    """Return how the settings want topics."""
    return Wish(
        replication_factor=settings.topics.replication_factor,
        min_insync_replicas=settings.topics.min_insync_replicas,
        partitions=settings.topics.partitions,
    )


@app.command
async def plan(*, options: Shown = SHOWN) -> int:
    """Show what `apply` would change; exit 1 if there is something."""
    settings = options.settings()
    steps = await admin.differences(kafka_connection(settings), wish(settings))
    _show(steps, options)
    return 1 if any(step.changes for step in steps) else 0


@app.command
async def apply(*, options: Shown = SHOWN) -> None:
    """Create topics, add partitions, set configs. Never takes partitions, retention or records away."""
    settings = options.settings()
    steps = await admin.apply(kafka_connection(settings), wish(settings))
    _show(steps, options)
    say(f"{sum(step.changes for step in steps)} changed")


def _show(steps: list[Step], options: Shown) -> None:
    rows = [
        {"topic": s.topic, "action": s.action, "what": s.what, "now": s.now, "wanted": s.wanted}
        for s in steps
    ]
    show_rows(rows, ("topic", "action", "what", "now", "wanted"), options.form)
