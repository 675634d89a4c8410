"""One round: a deployment, its load, faults for a while, silence, and the judgement."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.faults.fault import Fault, Injection, Scale
from tests.faults.faults.postgres import STALLED
from tests.faults.judge.cursors import CursorWatch
from tests.faults.judge.findings import Findings, merge
from tests.faults.judge.judge import Evidence, Verdict, judge
from tests.faults.load.load import LoadOptions, Pace
from tests.faults.processes.deployment import BOUND, FULL_FLOODS, Deployment, Layout, deployed
from tests.faults.processes.fleet import CommandFailed
from tests.faults.recovery import Recovery, recovery
from tests.faults.schedule import Say, Schedule

_WARM_S = 3.0
_PUBLISHED_S = 60.0
_SUMMARISED_S = 60.0
_REBUILT_S = 2400.0
_SKIPPED = 76
"""A worker's exit status when Kafka's client left out an offset: it is to exit, and not to go on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round consists of."""

    seed: int
    seconds: float
    faults: Sequence[Fault]
    layout: Layout = field(default_factory=Layout)
    load: LoadOptions = field(default_factory=LoadOptions)
    alone: bool = True
    """Whether each fault comes alone first."""
    in_pairs: bool = True
    scale: Scale = field(default_factory=lambda: Scale(0.5))
    patience_s: float = 120.0
    """How long answers may come after the load."""
    explain_s: float = 0.0
    """For how long requests are explained at the end."""
    calm_s: float = 45.0
    """How long at most is waited between two faults until all is answered as fast as ever."""


@dataclass(slots=True)
class Result:
    """What came of a round."""

    verdict: Verdict
    injections: list[Injection]
    recoveries: list[Recovery]
    impossible: dict[str, str]
    skips: int
    """Workers that exited rather than skip an offset."""
    pace: Pace
    """How many requests a second there were, and how late machines came."""


async def play(plan: Plan, folder: Path, say: Say) -> Result:
    """Play a round and judge it."""
    rng = random.Random(plan.seed)  # noqa: S311 - the same choices for the same seed
    async with deployed(folder, plan.layout, rng, plan.load) as deployment:
        say("the deployment is ready")
        schedule = Schedule(deployment, rng, plan.scale, say, calm_s=plan.calm_s)
        findings = Findings()
        async with under_load(deployment, findings):
            await _inject(plan, deployment, schedule)
        verdict = await judged(
            deployment,
            findings,
            say,
            patience_s=plan.patience_s,
            explain_s=plan.explain_s,
            injections=schedule.injections,
        )
        rows = await deployment.postgres.run(
            "SELECT event_id::text, extract(epoch FROM recorded_at)::float8 FROM watchword.journal WHERE topic IS NOT NULL"
        )
        recorded = [(row[0], row[1]) for row in rows]
        await check_drain(deployment, findings)
        recoveries = [
            recovery(
                injection,
                deployment.ledger.asked.values(),
                recorded,
                deployment.load.tail.events,
            )
            for injection in schedule.injections
        ]
        if plan.scale.share >= 1.0 or plan.layout.floods == FULL_FLOODS:
            # A short run shares its machine with others, and only shows how long they were.
            _check_waits(plan.faults, schedule.injections, recoveries, findings)
        return Result(
            verdict,
            schedule.injections,
            recoveries,
            schedule.impossible,
            sum(ended.status == _SKIPPED for ended in deployment.fleet.exits),
            deployment.load.pace,
        )


@contextlib.asynccontextmanager
async def under_load(deployment: Deployment, findings: Findings) -> AsyncGenerator[None]:
    """Have machines ask, and operators work, for as long as the block lasts."""
    stop = asyncio.Event()
    load = deployment.load
    watch = CursorWatch(lambda: deployment.postgres.superuser_dsn)
    meanwhile = [
        asyncio.create_task(load.operate()),
        asyncio.create_task(watch.run()),
        asyncio.create_task(_goes_on(deployment.background)),
    ]
    loading = asyncio.create_task(load.run(stop))
    try:
        yield
    finally:
        stop.set()
        await loading
        for task in meanwhile:
            task.cancel()
        for task in meanwhile:
            # Whoever ended by itself did so by a mistake, which is raised here.
            with contextlib.suppress(asyncio.CancelledError):
                await task
    merge(findings, watch.findings)


async def judged(
    deployment: Deployment,
    findings: Findings,
    say: Say,
    *,
    patience_s: float,
    explain_s: float = 0.0,
    injections: Sequence[Injection] = (),
) -> Verdict:
    """Wait until all is quiet, at most so long for answers, and return the verdict, with what was found before.

    What was asked is explained for `explain_s` seconds at most.
    """
    await _until_quiet(deployment, patience_s, say)
    await deployment.look_at_pages()
    await _rebuild(deployment, findings)
    _check_exits(deployment, findings)
    await _check_gateways(deployment, findings)
    begun = time.monotonic()
    verdict = await judge(_evidence(deployment, explain_s, injections))
    explained = verdict.explained
    say(
        f"judged within {time.monotonic() - begun:.0f} s; explained {explained.done} of {explained.of} requests"
    )
    merge(findings, verdict.findings)
    verdict.findings = findings
    return verdict


async def _inject(plan: Plan, deployment: Deployment, schedule: Schedule) -> None:
    """Inject faults: each alone, then pairs, as long as the plan says."""
    begun = time.monotonic()
    await asyncio.sleep(_WARM_S)
    if plan.alone:
        await schedule.alone(plan.faults)
        schedule.say(f"each was there alone after {time.monotonic() - begun:.0f} s")
    if plan.in_pairs:
        possible = [f for f in plan.faults if f.impossible(deployment) is None]
        await schedule.pairs(possible, begun + plan.seconds)
    await asyncio.sleep(max(0.0, begun + plan.seconds - time.monotonic()))


async def _goes_on(background: Sequence["asyncio.Task[None]"]) -> None:
    """Wait for ever; raises `RuntimeError` if one of the tasks ends, for nothing is known from then on."""
    ended, _ = await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
    message = f"ended in the middle of the load: {ended}"
    raise RuntimeError(message)


async def _until_quiet(deployment: Deployment, patience_s: float, say: Say) -> None:
    """Wait until all is answered, published and summarised; what is not in time is for the judge."""
    load, began = deployment.load, time.monotonic()
    try:
        async with asyncio.timeout(patience_s):
            await load.drain()
            # An answer may have more requests follow.
            while load.ledger.waiting(time.monotonic())[0] or load.sends:
                await asyncio.sleep(0.2)
    except TimeoutError:
        count, oldest_s = load.ledger.waiting(time.monotonic())
        say(f"not all is answered: {count} wait, the oldest for {oldest_s:.1f} s")
    for condition, within_s in (
        (_all_published, _PUBLISHED_S),
        (_all_summarised, _SUMMARISED_S),
        (_all_published, _PUBLISHED_S),
    ):
        deadline = time.monotonic() + within_s
        while not await condition(deployment):
            if time.monotonic() >= deadline:
                say(f"gave up waiting: {condition.__name__.strip('_')}")
                break
            await asyncio.sleep(0.5)
    say(f"quiet after {time.monotonic() - began:.1f} s")


async def _all_published(deployment: Deployment) -> bool:
    rows = await deployment.postgres.run(
        "SELECT event_id::text FROM watchword.journal WHERE topic IN ('node.events', 'security.join.refused')"
    )
    seen = deployment.load.tail.events
    return all(row[0] in seen or row[0] in deployment.ledger.injected_events for row in rows)


async def _all_summarised(deployment: Deployment) -> bool:
    rows = await deployment.postgres.run(
        "SELECT (SELECT count(*) FROM watchword.refusals WHERE NOT published) = "
        "coalesce((SELECT sum((convert_from(value, 'UTF8')::jsonb ->> 'suppressed')::bigint) FROM watchword.journal "
        "WHERE type = 'security.join.refused.window'), 0)"
    )
    return bool(rows[0][0])


def _evidence(
    deployment: Deployment, explain_s: float, injections: Sequence[Injection]
) -> Evidence:
    async def explain(stretches: Sequence[tuple[str, str]]) -> Sequence[dict[str, Any] | None]:
        workers = deployment.layout.sizes.workers
        return await deployment.operator.explain(stretches, within_s=explain_s, at_once=workers)

    return Evidence(
        explain=explain if explain_s else None,
        bootstrap_servers=deployment.kafka.bootstrap_servers,
        dsn=deployment.postgres.superuser_dsn,
        ledger=deployment.ledger,
        csr_keys=deployment.load.supplies.csr_keys,
        ends=deployment.load.supplies.ends,
        commands=deployment.load.supplies.commands,
        trust=deployment.trust,
        bound=BOUND,
        stalls=[(i.began_wall, i.ended_wall) for i in injections if i.fault == STALLED],
        canaries=deployment.canaries,
        logs=[*deployment.fleet.logs, *deployment.kafka.logs, *deployment.postgres.logs],
        pages=deployment.pages,
    )


async def _rebuild(deployment: Deployment, findings: Findings) -> None:
    """Fold the journal and compare it with the tables, as an operator would."""
    try:
        # A journal of twenty minutes, on a machine that may be busy with something else.
        await asyncio.to_thread(deployment.fleet.command, "rebuild", "--check", within_s=_REBUILT_S)
    except CommandFailed as error:
        findings.wrong("rebuild --check", str(error))


def _check_exits(deployment: Deployment, findings: Findings) -> None:
    """Nobody ends by itself, but a worker that would otherwise skip an offset."""
    for ended in deployment.fleet.exits:
        if not ended.was_meant and ended.status != _SKIPPED:
            findings.wrong("process that ended by itself", f"{ended.name}: {ended.status}")


def _check_waits(
    faults: Sequence[Fault],
    injections: Sequence[Injection],
    recoveries: Sequence[Recovery],
    findings: Findings,
) -> None:
    """Where it is promised how long an answer takes at most beside a fault, none took longer."""
    bounds = {fault.name: fault.answers_within_s for fault in faults}
    for injection, found in zip(injections, recoveries, strict=True):
        bound = bounds.get(injection.fault)
        if bound is None or injection.together_with is not None or found.answer_s is None:
            continue
        if found.answer_s > bound:
            detail = f"{injection.fault}: {found.answer_s:.2f} s"
            findings.wrong("answer later than promised", detail)


async def _check_gateways(deployment: Deployment, findings: Findings) -> None:
    """What a gateway took, a gateway answers."""
    http = deployment.load.http
    if http is None:
        return
    for digest in deployment.load.unanswered:
        if not await http.await_answer(digest, within_s=10.0):
            findings.lost("answer that no gateway has", digest.hex())


async def check_drain(deployment: Deployment, findings: Findings) -> None:
    """SIGTERM ends every process in good order."""
    for name, status in (await deployment.fleet.stop()).items():
        if status != 0:
            findings.wrong("exit status after SIGTERM", f"{name}: {status}")
