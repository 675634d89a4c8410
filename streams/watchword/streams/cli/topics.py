"""`watchword topics plan|apply`."""

from cyclopts import App

from watchword.schemas.topics import TOPICS, Topic, tenant_topic
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import say, show_rows
from watchword.streams.settings import Settings
from watchword.streams.topics import admin
from watchword.streams.topics.access import Access
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


def topics(settings: Settings) -> tuple[Topic, ...]:
    """Return all topics of this deployment, tenants' own included."""
    return (*TOPICS, *map(tenant_topic, settings.refusals.tenant_topics))


def access(settings: Settings) -> Access:
    """Return who may do what, as the settings say."""
    found = settings.access
    rates: dict[str, int] = {}
    for principals, rate in (
        (found.agents, found.agent_bytes_per_s),
        (found.gateways, found.gateway_bytes_per_s),
    ):
        if rate is not None:
            rates |= dict.fromkeys(principals, rate)
    return Access(
        agents=found.agents,
        gateways=found.gateways,
        workers=found.workers,
        relays=found.relays,
        consoles=found.consoles,
        siems=found.siems,
        tenant_siems=found.tenant_siems,
        tenant_topics=settings.refusals.tenant_topics,
        worker_group=settings.worker.group_id,
        siem_group=found.siem_group,
        produce_bytes_per_s=rates,
    )


@app.command
async def plan(*, options: Shown = SHOWN) -> int:
    """Show what `apply` would change; exit 1 if there is something."""
    settings = options.settings()
    steps = await admin.differences(
        kafka_connection(settings), wish(settings), topics(settings), access(settings)
    )
    _show(steps, options)
    return 1 if any(step.changes for step in steps) else 0


@app.command
async def apply(*, options: Shown = SHOWN) -> None:
    """Create topics, add partitions, set configs, rules of access and quotas. Takes nothing away."""
    settings = options.settings()
    steps = await admin.apply(
        kafka_connection(settings), wish(settings), topics(settings), access(settings)
    )
    _show(steps, options)
    say(f"{sum(step.changes for step in steps)} changed")


def _show(steps: list[Step], options: Shown) -> None:
    rows = [
        {"topic": s.topic, "action": s.action, "what": s.what, "now": s.now, "wanted": s.wanted}
        for s in steps
    ]
    show_rows(rows, ("topic", "action", "what", "now", "wanted"), options.form)
