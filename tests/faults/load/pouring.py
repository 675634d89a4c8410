"""A flood at gateways, from many addresses: junk as fast as it is answered, slow connections, idle pollers."""

import asyncio
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.faults.load.malformed import ALWAYS, MALFORMATIONS, RARE, TOO_LARGE, Bases, chunked
from tests.faults.load.wire import CUT, Answer, Cut, Wire, address, poll, post

_CONNECTIONS = 40
_AT_ONCE = 200
"""Connections that are opened at the same time."""
_NET, _SLOW_NET, _IDLE_NET = 1, 2, 3
_TRICKLE_S = 0.5
_REST_S = 0.5
_WAIT_S = 25
_SENT_AWAY_S = (5.0, 15.0)
_SLOW_ANSWERS = {
    "slow head": frozenset((CUT,)),
    "slow body": frozenset(("timeout", CUT)),
    "endless body": frozenset((TOO_LARGE, "timeout", CUT)),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is poured: how many of each, and onto which ports."""

    ports: Sequence[int]
    bases: Bases
    junk: int
    slow: int
    pollers: int
    readable: Sequence[bytes] = field(repr=False)
    """Nonsense in good form, which gateways take; each is sent until one has taken it."""


@dataclass(slots=True)
class Poured:
    """What came of it."""

    answers: defaultdict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict[str, Counter[str]](Counter)
    )
    """By the kind of junk: how often each problem, status or `cut` was the answer."""
    taken: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """Which of the readable ones were taken, and when, on the monotonic clock."""
    without_a_time: int = 0
    """Answers that tell to come again and not when."""
    polls: Counter[str] = field(default_factory=Counter[str])
    """What idle pollers were answered."""
    seconds: float = 0.0
    """How long the junk alone took."""

    def take(self, kind: str, answer: Answer | None) -> None:
        """Note an answer."""
        self.answers[kind][CUT if answer is None else answer.name] += 1
        if answer is not None and answer.status in (429, 503) and not answer.may_return:
            self.without_a_time += 1


def expected(kind: str) -> frozenset[str]:
    """Return what may be answered to a kind of junk."""
    if kind in _SLOW_ANSWERS:
        return _SLOW_ANSWERS[kind]
    return MALFORMATIONS[kind].answers | ALWAYS


async def pour(plan: Plan) -> Poured:
    """Pour all of it at once, and return when the last junk is answered."""
    poured = Poured()
    async with _idle(plan, poured), asyncio.TaskGroup() as tasks:
        slow = list(_SLOW_ANSWERS)
        for nth in range(plan.slow):
            tasks.create_task(_slow(plan, poured, slow[nth % len(slow)], nth))
        begun = time.monotonic()
        await _junk(plan, poured)
        poured.seconds = time.monotonic() - begun
    return poured


async def _junk(plan: Plan, poured: Poured) -> None:
    kinds = [kind for kind in MALFORMATIONS for _ in range(1 if kind in RARE else 10)]
    work: list[str | int] = [kinds[nth % len(kinds)] for nth in range(plan.junk)]
    work += range(len(plan.readable))
    random.shuffle(work)
    async with asyncio.TaskGroup() as tasks:
        for nth in range(_CONNECTIONS):
            tasks.create_task(_pour_some(plan, poured, work, nth))


async def _pour_some(plan: Plan, poured: Poured, work: list[str | int], nth: int) -> None:
    """Send what is left, one after the other."""
    wire: Wire | None = None
    while work:
        one = work.pop()
        wire = wire or await _connected(plan, _NET, nth)
        try:
            if isinstance(one, int):
                answer = await wire.ask(post(plan.readable[one]))
                if answer.status == 202:
                    poured.taken.append((one, time.monotonic()))
                else:
                    poured.take("readable", answer)
                    work.insert(0, one)
            else:
                kind = MALFORMATIONS[one]
                answer = await wire.ask(kind.make(random.choice(plan.bases.good), plan.bases))  # noqa: S311 - junk
                poured.take(one, answer)
        except Cut:
            if isinstance(one, int):
                work.insert(0, one)
            else:
                poured.take(one, None)
            answer = None
        # Of a body that was refused early the rest is still on its way: another connection is quicker.
        if answer is None or answer.closes or answer.name not in ("202", "undecodable"):
            wire.drop()
            wire = None
    if wire is not None:
        wire.drop()


async def _connected(plan: Plan, net: int, nth: int) -> Wire:
    """Connect to one of the gateways, again and again if they are busy."""
    while True:
        try:
            return await Wire.opened(random.choice(plan.ports), address(net, nth))  # noqa: S311 - junk
        except Cut:
            await asyncio.sleep(_REST_S)


async def _slow(plan: Plan, poured: Poured, kind: str, nth: int) -> None:
    """Be slow in one way, until the gateway has had enough."""
    wire = await _connected(plan, _SLOW_NET, nth)
    head = b"POST /v1/joins HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
    trickles: dict[str, tuple[bytes, Callable[[], bytes], float]] = {
        "slow head": (b"POST /v1/joins HTTP/1.1\r\n", lambda: b"X: y\r\n", _TRICKLE_S),
        "slow body": (head + b"Content-Length: 5000\r\n\r\n", lambda: b"{", _TRICKLE_S),
        "endless body": (
            head + b"Transfer-Encoding: chunked\r\n\r\n",
            lambda: chunked(1, 4096),
            0.01,
        ),
    }
    begin, more, every_s = trickles[kind]

    async def trickle() -> None:
        await wire.write(begin)
        while True:
            await wire.write(more())
            await asyncio.sleep(every_s)

    trickling = asyncio.create_task(_until_cut(trickle()))
    try:
        answer: Answer | None = await wire.answer()
    except Cut:
        answer = None
    trickling.cancel()
    wire.drop()
    poured.take(kind, answer)


async def _until_cut(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except Cut:
        return


@asynccontextmanager
async def _idle(plan: Plan, poured: Poured) -> AsyncGenerator[None]:
    """Have machines ask for answers that never come, for as long as the block lasts."""
    door = asyncio.Semaphore(_AT_ONCE)
    pollers = [asyncio.create_task(_wait(plan, poured, nth, door)) for nth in range(plan.pollers)]
    try:
        # Until each has been heard once, or waits.
        while pollers and poured.polls["begun"] < plan.pollers:
            await asyncio.sleep(0.05)
        yield
    finally:
        for poller in pollers:
            poller.cancel()
        await asyncio.gather(*pollers, return_exceptions=True)


async def _wait(plan: Plan, poured: Poured, nth: int, door: asyncio.Semaphore) -> None:
    wire: Wire | None = None
    digest = os.urandom(32)
    has_begun = False
    try:
        while True:
            if wire is None:
                async with door:
                    wire = await _connected(plan, _IDLE_NET, nth)
            if not has_begun:
                has_begun = True
                poured.polls["begun"] += 1
            try:
                answer = await wire.ask(poll(digest, _WAIT_S))
            except Cut:
                poured.polls[CUT] += 1
                wire.drop()
                wire = None
                continue
            poured.polls[answer.name] += 1
            if answer.status in (429, 503):
                poured.without_a_time += not answer.may_return
                rest_s = max(random.uniform(*_SENT_AWAY_S), answer.retry_after_s or 0)  # noqa: S311 - as agents do
                await asyncio.sleep(rest_s)
    finally:
        if wire is not None:
            wire.drop()
