"""Puts a keeper together."""

from datetime import timedelta

from watchword.handlers.alerts import AlertRules
from watchword.handlers.windows import Limit
from watchword.streams.keeper import KeeperOptions, run_keeper
from watchword.streams.lifecycle import HealthAddress, Lifecycle
from watchword.streams.settings import Settings
from watchword.streams.wiring.connections import open_database


async def run(settings: Settings) -> None:
    """Keep until SIGTERM or SIGINT.

    Raises:
        ConfigRefused: nothing says where PostgreSQL is.
        OSError: the health listener's address is taken.
    """
    keeper, refusals = settings.keeper, settings.refusals
    async with open_database(settings, "keeper") as database:
        await run_keeper(
            KeeperOptions(
                database=database,
                name=settings.worker.name,
                limit=Limit(refusals.limit, refusals.window_s),
                alerts=AlertRules(
                    timedelta(seconds=refusals.alert_repeat_s),
                    refusals.alert_credentials,
                    timedelta(seconds=refusals.alert_window_s),
                ),
                source=f"/watchword/{settings.deployment.cluster}/keeper",
                lifecycle=Lifecycle(listen=HealthAddress(settings.health.host, keeper.health_port)),
                lease_s=keeper.lease_s,
                interval_s=keeper.interval_s,
                period_s=keeper.period_s,
                partition_days_ahead=keeper.partition_days_ahead,
                refusal_retention_days=keeper.refusal_retention_days,
                inbox_retention_h=keeper.inbox_retention_h,
                join_request_retention_days=keeper.join_request_retention_days,
                command_retention_days=keeper.command_retention_days,
            )
        )
