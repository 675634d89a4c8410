"""A fleet that boots at once: each machine asks until it has joined, and some lose their power in between."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from tests.faults.load.wire import Answer, Cut, Wire, address, poll, post

_NET = 4
_REST_S = (0.5, 1.5)
_AWAY_S = (1.0, 4.0)
_WAIT_S = 25
_COME_AGAIN = (429, 503)


class Loss(StrEnum):
    """When a machine loses its power, once."""

    NEVER = "never"
    IN_THE_BODY = "in the body"
    BEFORE_THE_ANSWER = "before the answer"
    WHILE_IT_WAITS = "while it waits"


@dataclass(frozen=True, slots=True)
class Boot:
    """One machine: its request, and what it sends when it is back, which may be another."""

    request: bytes = field(repr=False)
    after: bytes = field(repr=False)
    loss: Loss


@dataclass(slots=True)
class Booted:
    """What the fleet has seen."""

    begun: list[float] = field(default_factory=list[float])
    """When each began, on the monotonic clock."""
    taken: list[tuple[int, bool, float]] = field(default_factory=list[tuple[int, bool, float]])
    """Whose request was taken, whether the one after its loss, and when, on the monotonic clock."""
    answered: list[tuple[int, bool, float]] = field(default_factory=list[tuple[int, bool, float]])
    """The same of answers."""
    shed: Counter[str] = field(default_factory=Counter[str])
    """Problems with which machines were sent away for a while."""
    without_a_time: int = 0
    """Those that did not say for how long."""
    lost: Counter[str] = field(default_factory=Counter[str])
    """Losses of power that came about."""
    connections_lost: int = 0
    """Connections that ended without anybody's wish."""


class _PowerLost(Exception):
    pass


async def boot(
    ports: Sequence[int],
    machines: Sequence[Boot],
    within_s: float,
    *,
    first_after_s: float = 0.0,
    every_s: float = 0.0,
) -> Booted:
    """Boot all at once, or one every so often; return when each has its answer, or when the time is over."""
    now = time.monotonic()
    booted = Booted([now + first_after_s + nth * every_s for nth in range(len(machines))])
    tasks = [
        asyncio.create_task(_boot(ports, booted, nth, machine))
        for nth, machine in enumerate(machines)
    ]
    _, late = await asyncio.wait(tasks, timeout=within_s)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    return booted


async def _boot(ports: Sequence[int], booted: Booted, nth: int, machine: Boot) -> None:
    loss = machine.loss
    await asyncio.sleep(max(0.0, booted.begun[nth] - time.monotonic()))
    try:
        await _join(ports, booted, nth, machine.request, loss)
    except _PowerLost:
        booted.lost[loss] += 1
        await asyncio.sleep(random.uniform(*_AWAY_S))  # noqa: S311 - when it comes back
        await _join(ports, booted, nth, machine.after, Loss.NEVER, is_back=True)


async def _join(
    ports: Sequence[int],
    booted: Booted,
    nth: int,
    request: bytes,
    loss: Loss,
    *,
    is_back: bool = False,
) -> None:
    """Hand a request in until it is taken, then ask until there is an answer."""
    digest, is_taken = sha256(request).digest(), False
    wire: Wire | None = None
    try:
        while True:
            try:
                wire = wire or await Wire.opened(
                    random.choice(ports),  # noqa: S311 - as a load balancer would
                    address(_NET, nth),
                )
                if not is_taken:
                    answer = await _handed_in(wire, request, loss)
                    is_taken = answer.status == 202
                    if is_taken:
                        booted.taken.append((nth, is_back, time.monotonic()))
                else:
                    answer = await _asked(wire, digest, loss)
                    if answer.status == 200:
                        booted.answered.append((nth, is_back, time.monotonic()))
                        return
            except Cut:
                booted.connections_lost += 1
                _drop(wire)
                wire = None
                await asyncio.sleep(random.uniform(*_REST_S))  # noqa: S311 - as agents do
                continue
            if answer.status in _COME_AGAIN:
                booted.shed[f"{answer.status} {answer.problem}"] += 1
                booted.without_a_time += not answer.may_return
                rest_s = max(random.uniform(*_REST_S), answer.retry_after_s or 0)  # noqa: S311 - as agents do
                await asyncio.sleep(rest_s * random.uniform(1.0, 1.25))  # noqa: S311 - as above
            if answer.closes:
                _drop(wire)
                wire = None
    finally:
        _drop(wire)


async def _handed_in(wire: Wire, request: bytes, loss: Loss) -> Answer:
    message = post(request)
    match loss:
        case Loss.IN_THE_BODY:
            await wire.write(message[: len(message) // 2])
            raise _PowerLost
        case Loss.BEFORE_THE_ANSWER:
            await wire.write(message)
            raise _PowerLost
        case _:
            return await wire.ask(message)


async def _asked(wire: Wire, digest: bytes, loss: Loss) -> Answer:
    message = poll(digest, _WAIT_S)
    if loss is Loss.WHILE_IT_WAITS:
        await wire.write(message)
        raise _PowerLost
    return await wire.ask(message)


def _drop(wire: Wire | None) -> None:
    if wire is not None:
        wire.drop()
