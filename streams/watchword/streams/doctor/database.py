"""Checks of PostgreSQL: schema, time limits, durability, partitions, what waits for the relay."""

from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta

from watchword.handlers.errors import ConfigRefused
from watchword.handlers.store import deployment
from watchword.handlers.store.connection import TIME_LIMITS, Connection, Database
from watchword.handlers.store.migrate import status
from watchword.streams.doctor.findings import Finding, fail, ok, warn

_LEAST_VERSION = 150_000
_MAX_SKEW_S = 5.0
_MAX_AGE_S = 60.0


async def check_database(
    database: Database, url: str, *, days_ahead: int
) -> AsyncGenerator[Finding]:
    """Yield findings; raises `StoreUnavailable` when PostgreSQL is away."""
    schema = await _schema(url)
    yield schema
    before = datetime.now(UTC)
    async with database.transaction() as connection:
        theirs = await deployment.clock(connection)
        after = datetime.now(UTC)
        yield _clock(before + (after - before) / 2, theirs)
        settings = await deployment.session(connection)
        for finding in _session(settings):
            yield finding
        yield await _standbys(connection, settings)
        if schema.level == "ok":
            for finding in await _contents(connection, theirs, days_ahead):
                yield finding


async def _schema(url: str) -> Finding:
    try:
        found = await status(url)
    except ConfigRefused as error:
        return fail("schema", str(error))
    lacking = [str(migration.number) for migration in found if migration.applied is None]
    if lacking:
        return fail(
            "schema", f"migrations {', '.join(lacking)} are missing: `watchword db migrate`"
        )
    newer = sum(migration.is_newer for migration in found)
    text = f"{len(found) - newer} migrations, as this release has them"
    if newer:
        text += f", and {newer} of a newer release, whose upgrade has begun"
    return ok("schema", text)


def _clock(ours: datetime, theirs: datetime) -> Finding:
    skew = (ours - theirs).total_seconds()
    text = f"{skew:+.3f} s off PostgreSQL's"
    return fail("clock", text) if abs(skew) > _MAX_SKEW_S else ok("clock", text)


def _session(settings: Mapping[str, str]) -> list[Finding]:
    findings: list[Finding] = []
    wrong = [
        f"{name} is {settings.get(name)} ms, not {value} ms"
        for name, value in TIME_LIMITS.items()
        if settings.get(name) != value
    ]
    if wrong:
        pooler = "; a pooler between us drops start-up settings"
        findings.append(fail("time limits", "; ".join(wrong) + pooler))
    else:
        findings.append(ok("time limits", "in force for our sessions"))
    version = int(settings["server_version_num"])
    said = f"{version // 10_000}.{version % 10_000}"
    if version < _LEAST_VERSION:
        findings.append(fail("postgresql version", f"{said}; 15 or later is needed"))
    else:
        findings.append(ok("postgresql version", said))
    findings += [
        fail(name, "off: a crash of the server loses what was answered")
        for name in ("fsync", "full_page_writes")
        if settings.get(name) != "on"
    ]
    if settings.get("synchronous_commit") == "off":
        findings.append(fail("synchronous_commit", "off: a crash loses what was answered"))
    return findings


async def _standbys(connection: Connection, settings: Mapping[str, str]) -> Finding:
    if not settings.get("synchronous_standby_names"):
        return warn(
            "standby",
            "none is synchronous: after a failover Kafka may know what PostgreSQL has lost",
        )
    count = await deployment.synchronous_standbys(connection)
    if count == 0:
        return fail("standby", "a synchronous one is configured and none is connected")
    return ok("standby", f"{count} synchronous")


async def _contents(connection: Connection, now: datetime, days_ahead: int) -> list[Finding]:
    findings: list[Finding] = []
    for parent, until in (await deployment.partitions_until(connection)).items():
        text = f"partitions reach to {until:%Y-%m-%d}"
        if until < now + timedelta(days=1):
            findings.append(fail(parent, f"{text}: writes are about to fail; is a keeper running?"))
        elif until < now + timedelta(days=days_ahead - 1):
            findings.append(
                warn(parent, f"{text}, less than {days_ahead} days; is a keeper running?")
            )
        else:
            findings.append(ok(parent, text))
    waiting = await deployment.backlog(connection)
    text = f"{waiting.rows} events wait for a relay, the oldest for {waiting.age_s:.0f} s"
    findings.append(warn("journal", text) if waiting.age_s > _MAX_AGE_S else ok("journal", text))
    if await deployment.ids_are_behind(connection):
        findings.append(
            fail(
                "transaction ids",
                "behind the cursors': a dump was loaded; see the guide on backups",
            )
        )
    else:
        findings.append(ok("transaction ids", "the cursors' own"))
    held = await deployment.leases(connection)
    if held.shards == 0:
        findings.append(warn("relay", "no shard is held: no relay is running"))
    else:
        findings.append(ok("relay", f"{held.shards} of 32 shards are held"))
    if held.others == 0:
        findings.append(warn("keeper", "no lease is held: no keeper is running"))
    else:
        findings.append(ok("keeper", "one is at work"))
    return findings
