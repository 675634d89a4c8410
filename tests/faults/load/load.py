"""The open loop: so many requests a second, whatever becomes of them."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.faults.judge.ledger import BANNED, JOINED, Ledger
from tests.faults.load.http_sender import HttpSender
from tests.faults.load.kafka_sender import KafkaSender
from tests.faults.load.kinds import Send, Supplies, Then
from tests.faults.load.mix import KINDS
from tests.faults.load.tail import Tail
from tests.faults.load.tokens import Operator

_AGAIN = 0.15
"""The share of writes whose bytes are written again."""
_AGAIN_AFTER_S = (0.0, 0.0, 0.02, 1.0, 5.0)
_ASKED_FOR = 0.25
"""The share of what goes through gateways whose answers are asked for through gateways."""
_SLOT_S = 10.0


@dataclass(slots=True)
class LoadOptions:
    """How much, and how."""

    rate: float = 50.0
    """Arrivals a second. An arrival is one to three requests; copies come on top."""
    through_gateways: float = 0.2
    """The share of well-formed requests that goes through gateways."""
    answer_within_s: float = 120.0
    """How long a gateway is asked for an answer."""
    reclaim_every_s: float = 1.5
    revoke_every_s: float = 8.0


@dataclass(slots=True)
class Pace:
    """How well the machines kept their time: whether it was this process that was slow."""

    begun: float = field(default_factory=time.monotonic)
    requests: int = 0
    """Requests begun while the load lasted; copies of the same bytes are not counted."""
    records: int = 0
    """What was begun to be written while the load lasted: requests, and copies of their bytes."""
    by_slot: Counter[int] = field(default_factory=Counter[int])
    """The same by tenths of a second times a hundred: slots of ten seconds."""
    latest_s: float = 0.0
    """The longest that an arrival came behind its time."""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second over all."""
        return self.requests / max(self.seconds, 0.001)

    @property
    def records_rate(self) -> float:
        """Records a second over all."""
        return self.records / max(self.seconds, 0.001)

    @property
    def least_rate(self) -> float:
        """Requests a second in the worst whole slot."""
        slots = range(int(self.seconds / _SLOT_S))
        return min((self.by_slot[slot] for slot in slots), default=0) / _SLOT_S

    def count(self) -> None:
        """Count a request that is begun now."""
        self.requests += 1
        self.records += 1
        self.by_slot[int((time.monotonic() - self.begun) / _SLOT_S)] += 1


@dataclass(slots=True)
class Load:
    """The machines and the operator of one round."""

    supplies: Supplies
    ledger: Ledger
    kafka: KafkaSender
    http: HttpSender | None
    tail: Tail
    operator: Operator
    options: LoadOptions = field(default_factory=LoadOptions)
    unanswered: list[bytes] = field(default_factory=list[bytes])
    """Requests whose answer no gateway gave in time."""
    sends: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    arrivals: int = 0
    pace: Pace = field(default_factory=Pace)
    exchanges: dict[bytes, Then] = field(default_factory=dict[bytes, Then])
    """What follows if a request is deferred, by its digest."""
    lives: dict[bytes, Then] = field(default_factory=dict[bytes, Then])
    """What follows if a request is admitted, by its digest."""

    @property
    def rng(self) -> random.Random:
        """The source of every choice."""
        return self.supplies.rng

    async def run(self, stop: asyncio.Event) -> None:
        """Let machines arrive until told to stop; what was begun goes on."""
        kinds, weights = list(KINDS), list(KINDS.values())
        pace = self.pace = Pace()
        self.tail.on_deferral = partial(self._follow, self.exchanges)
        self.tail.on_joined = partial(self._follow, self.lives)
        while not stop.is_set():
            # By the clock, not by pauses: what a slow moment held up arrives at once.
            due = int((time.monotonic() - pace.begun) * self.options.rate)
            while self.arrivals < due:
                self.arrivals += 1
                late_s = time.monotonic() - pace.begun - self.arrivals / self.options.rate
                pace.latest_s = max(pace.latest_s, late_s)
                kind = self.rng.choices(kinds, weights)[0]
                for send in kind(self.supplies):
                    self.begin(send)
                if self.arrivals % 10 == 0:
                    await asyncio.sleep(0)
            with suppress(TimeoutError):
                async with asyncio.timeout(1 / self.options.rate):
                    await stop.wait()
        pace.seconds = time.monotonic() - pace.begun

    def begin(self, send: Send) -> None:
        """Write a request down, then send it, and perhaps its copies."""
        self.ledger.add(send.asked)
        self.pace.count()
        if send.then is not None:
            self.exchanges[send.asked.digest] = send.then
        if send.joined is not None:
            self.lives[send.asked.digest] = send.joined
        through_gateway = (
            self.http is not None
            and send.well_formed
            and self.rng.random() < self.options.through_gateways
        )
        self._spawn(self._deliver(send, through_gateway=through_gateway))
        if self.rng.random() < _AGAIN:
            self.pace.records += 1
            again_s = send.after_s + self.rng.choice(_AGAIN_AFTER_S)
            copy = replace(send, after_s=again_s, elsewhere=self.rng.random() < 0.7)
            self._spawn(self._deliver(copy, through_gateway=False))

    def _follow(self, open_: dict[bytes, Then], digest: bytes, told: Mapping[str, Any]) -> None:
        """Go on with a machine that was told something; the first answer counts."""
        then = open_.pop(digest, None)
        if then is None:
            return
        for send in then(told):
            self.begin(send)
        while self.supplies.to_decide:
            self._spawn(self._decide(*self.supplies.to_decide.popleft()))
        while self.supplies.to_tell:
            self._spawn(self._tell(*self.supplies.to_tell.popleft()))
        while self.supplies.to_ban:
            self._spawn(self._ban(self.supplies.to_ban.popleft()))

    async def _decide(self, csr_sha256: bytes, word: str) -> None:
        if await self.operator.decide(csr_sha256, word):
            self.ledger.decided[csr_sha256] = word

    async def _tell(self, node: str, kind: str) -> None:
        command = await self.operator.tell(node, kind)
        self.supplies.commands.sent[command] = node

    async def _ban(self, node: str) -> None:
        await self.operator.ban(node)
        self.supplies.ends[node] = BANNED

    async def drain(self) -> None:
        """Return when every send, and whatever follows from it, has come to its end."""
        while self.sends:
            await asyncio.wait(self.sends)

    async def operate(self) -> None:
        """Do what operators do meanwhile, until cancelled: stock, revocations, reclaims."""
        revoke_at = reclaim_at = 0.0
        while True:
            now = time.monotonic()
            await self.supplies.tokens.restock(self.operator)
            if now >= revoke_at and len(self.supplies.tokens.to_revoke) > 1:
                revoke_at = now + self.options.revoke_every_s
                await self.operator.revoke_token(self.supplies.tokens.to_revoke.pop(0))
            if now >= reclaim_at:
                reclaim_at = now + self.options.reclaim_every_s
                await self._prepare_reclaim()
            await asyncio.sleep(0.2)

    async def _prepare_reclaim(self) -> None:
        """Make one or two tokens for a node that has joined, if it is known to have been a plain join."""
        while self.tail.joined:
            digest, node = self.tail.joined.pop()
            asked = self.ledger.asked.get(digest)
            if asked is not None and asked.kind == "join" and asked.outcomes == {JOINED}:
                self.tail.joined.clear()
                tokens = await self.operator.make_tokens(
                    self.rng.choice((1, 2)), uses=1, allow_reclaim=True, expect={"node": node}
                )
                self.supplies.reclaims.extend((token, node) for token in tokens)
                return

    async def _deliver(self, send: Send, *, through_gateway: bool) -> None:
        await asyncio.sleep(send.after_s)
        digest = send.asked.digest
        if not through_gateway or self.http is None:
            await self.kafka.send(send)
            self.ledger.acknowledge(digest, time.monotonic())
            return
        await self.http.send(send)
        self.ledger.acknowledge(digest, time.monotonic())
        if self.rng.random() < _ASKED_FOR and not await self.http.await_answer(
            digest, within_s=self.options.answer_within_s
        ):
            self.unanswered.append(digest)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.sends.add(task)
        task.add_done_callback(self.sends.discard)
