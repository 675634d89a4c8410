"""Runs a simulation: an open loop, in which a machine comes when it is due, whatever became of the others."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from watchword.handlers.errors import Unavailable
from watchword.handlers.prover import NoEvidence
from watchword.schemas.responses import JoinResponse
from watchword.streams.agent.errors import TransportRefused
from watchword.streams.simulator.machine import NoAnswer, Service, SimulatedMachine
from watchword.streams.simulator.operator import SimulatedOperator
from watchword.streams.simulator.options import Simulation
from watchword.streams.simulator.plan import Planned, planned
from watchword.streams.simulator.provers import Showing, Shows
from watchword.streams.simulator.report import Report

PROGRESS_S = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class World:
    """What machines meet."""

    service: Service
    operator: SimulatedOperator
    shows: Showing


async def simulate(simulation: Simulation, world: World, say: Say) -> Report:
    """Send the machines, wait for all of them, and return what came of it."""
    report = Report()
    began = time.monotonic()
    approving = asyncio.create_task(world.operator.approve_for_ever())
    telling = asyncio.create_task(_tell(report, began, say))
    try:
        async with asyncio.TaskGroup() as group:
            for plan in planned(simulation):
                due = began + plan.at_s
                if (left_s := due - time.monotonic()) > 0:
                    await asyncio.sleep(left_s)
                report.due += 1
                group.create_task(_live(plan, due, world, report))
    finally:
        for task in (approving, telling):
            task.cancel()
        await asyncio.wait([approving, telling])
    say(report.progress(time.monotonic() - began))
    return report


async def _tell(report: Report, began: float, say: Say) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        say(report.progress(time.monotonic() - began))


async def _live(plan: Planned, due: float, world: World, report: Report) -> None:
    """Be one machine, from its first request to its leave."""
    report.running += 1
    step = "join"
    try:
        shows = world.shows[plan.kind]
        machine = SimulatedMachine(world.service, shows.role)
        world.operator.known.add(machine.csr_sha256)
        response = await _join(plan, machine, shows)
        if response is None:
            report.came_to(plan.kind, step, "nobody waits", time.monotonic() - due)
            return
        _compare_join(plan, response, machine, shows, due, report)
        if response.joined is None or not plan.may_join:
            return
        if plan.renews:
            step, due = "renew", time.monotonic()
            renewed = await machine.renew()
            _compare(plan, step, renewed, "joined", due, report)
        if plan.leaves:
            step, due = "leave", time.monotonic()
            if why := await world.operator.retire(response.joined.node_id):
                report.mismatch(plan.number, plan.kind, step, why)
                return
            _compare(plan, step, await machine.renew(), "refused", due, report)
    except NoAnswer as error:
        report.came_to(plan.kind, step, "no answer", time.monotonic() - due)
        report.mismatch(plan.number, plan.kind, step, str(error))
    except (NoEvidence, TransportRefused, Unavailable) as error:
        report.came_to(plan.kind, step, "not taken", time.monotonic() - due)
        report.mismatch(plan.number, plan.kind, step, str(error))
    finally:
        report.running -= 1


async def _join(plan: Planned, machine: SimulatedMachine, shows: Shows) -> JoinResponse | None:
    async with shows.proving(plan.number, forged=plan.fault == "forged") as prover:
        return await machine.join(
            prover,
            duplicate=plan.fault == "duplicate",
            bound_to=bytes(32) if plan.fault == "moved" else None,
            vanishes=plan.fault == "vanish",
        )


def _compare_join(
    plan: Planned,
    response: JoinResponse,
    machine: SimulatedMachine,
    shows: Shows,
    due: float,
    report: Report,
) -> None:
    _compare(plan, "join", response, "joined" if plan.may_join else "refused", due, report)
    if response.joined is None:
        return
    if response.joined.allowed_kinds != shows.allowed_kinds:
        kinds = response.joined.allowed_kinds
        report.mismatch(plan.number, plan.kind, "join", f"it may be told {kinds}")
    if shows.waits_for_operator and not machine.waits:
        report.mismatch(plan.number, plan.kind, "join", "it joined without an operator")


def _compare(
    plan: Planned, step: str, response: JoinResponse, wanted: str, due: float, report: Report
) -> None:
    failed = response.failed
    outcome = response.outcome if failed is None else failed.code
    report.came_to(plan.kind, step, outcome, time.monotonic() - due)
    if outcome != wanted:
        report.mismatch(plan.number, plan.kind, step, f"{outcome}, not {wanted}")
