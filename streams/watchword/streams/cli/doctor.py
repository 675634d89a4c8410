"""`watchword doctor`."""

from collections.abc import AsyncGenerator
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from cyclopts import Parameter

from watchword.handlers.errors import ConfigRefused, Unavailable
from watchword.streams.cli.options import SHOWN, Shown
from watchword.streams.cli.output import show_rows
from watchword.streams.cli.topics import topics, wish
from watchword.streams.doctor.database import check_database
from watchword.streams.doctor.findings import Finding, fail
from watchword.streams.doctor.kafka import check_kafka
from watchword.streams.doctor.keys import check_key_holders, check_keys, check_signer
from watchword.streams.settings import Settings
from watchword.streams.wiring.attestors import enabled_attestors, join_policy
from watchword.streams.wiring.connections import database_url, kafka_connection, open_database


async def doctor(
    *,
    strict: Annotated[bool, Parameter(help="Exit 1 for warnings as well.", negative="")] = False,
    options: Shown = SHOWN,
) -> int:
    """Check a deployment: one line a check, ok, warn or fail; exit 1 if one fails."""
    settings = options.settings()
    found = [finding async for finding in _all(settings)]
    show_rows([asdict(finding) for finding in found], ("level", "check", "text"), options.form)
    bad = {"fail", "warn"} if strict else {"fail"}
    return 1 if any(finding.level in bad for finding in found) else 0


async def _all(settings: Settings) -> AsyncGenerator[Finding]:
    try:
        async with open_database(settings, "doctor") as database:
            url, days = database_url(settings), settings.keeper.partition_days_ahead
            async for finding in check_database(database, url, days_ahead=days):
                yield finding
            async for finding in check_key_holders(settings.keys.directory, database):
                yield finding
    except (Unavailable, ConfigRefused) as error:
        yield fail("postgresql", str(error))
    try:
        inbox = timedelta(hours=settings.keeper.inbox_retention_h)
        kafka = kafka_connection(settings)
        for finding in await check_kafka(
            kafka, wish(settings), inbox=inbox, topics=topics(settings)
        ):
            yield finding
    except (Unavailable, ConfigRefused) as error:
        yield fail("kafka", str(error))
    for finding in check_keys(settings.keys.directory, settings.deployment.trust_domain):
        yield finding
    yield await check_signer(settings.signer.socket)
    try:
        enabled_attestors(settings, trust_domain=settings.deployment.trust_domain or "")
        join_policy(settings)
    except ConfigRefused as error:
        for problem in error.problems:
            yield fail("attestors", problem)
