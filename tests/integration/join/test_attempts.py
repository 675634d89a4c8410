"""What becomes of requests that were being judged when a worker ended: an engine that is given up stands for one."""

import asyncio
from contextlib import suppress
from hashlib import sha256

import pytest

from tests.support.joins import Bench, join_bench, keys
from tests.support.waiting import until
from watchword.handlers.attestor import (
    Admission,
    Deferral,
    Evidence,
    JoinContext,
    Role,
    TenantId,
)
from watchword.handlers.errors import OutOfMemory
from watchword.handlers.join import judging

pytestmark = pytest.mark.postgres

CRYPTO = keys()
"""Workers of one deployment have the same keys."""


class Greedy:
    """Admits; a payload `hog` needs more memory than there is, and `hang` never ends."""

    id = "greedy"
    version = "1"
    roles: frozenset[Role] = frozenset(("node",))

    def __init__(self) -> None:
        """Have seen nothing."""
        self.running = 0
        self.most = 0
        self.seen: list[bytes] = []

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Do what the payload says."""
        self.running += 1
        self.most = max(self.most, self.running)
        self.seen.append(evidence.payload)
        try:
            await context.tokens.get("nobodysnobodysxx")
            if evidence.payload == b"hog":
                raise MemoryError
            if evidence.payload == b"hang":
                await asyncio.Event().wait()
        finally:
            self.running -= 1
        return Admission(TenantId("acme"), context.role, "web", allowed_kinds=())


async def requests_of(bench: Bench, *payloads: bytes) -> list[bytes]:
    await bench.place("acme", "web")
    return [bench.machine().request(payload, attestor="greedy") for payload in payloads]


async def begun(dsn: str, batch: list[bytes], *, worker: str = "w0") -> None:
    """Let a worker end while it verifies a batch."""
    attestor = Greedy()
    async with join_bench(dsn, attestors=[attestor], crypto=CRYPTO, worker=worker) as bench:
        asking = asyncio.create_task(bench.ask(*batch))
        await until(lambda: bool(attestor.seen), "it is being judged")
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking


async def test_what_a_worker_ended_with_is_judged_with_nothing_beside_it(database: str) -> None:
    """One of them ended the worker. Beside others it would end them too, and nobody would know which it was."""
    async with join_bench(database, crypto=CRYPTO) as bench:
        batch = await requests_of(bench, *[b"good"] * 7, b"hang")
    await begun(database, batch)

    attestor = Greedy()
    async with join_bench(database, attestors=[attestor], crypto=CRYPTO, worker="w1") as bench:
        fresh = await requests_of(bench, b"new", b"new")
        answers = await bench.ask(*batch[:7], *fresh)
        left = await bench.fetch("SELECT digest FROM attempts")

    assert {answer["outcome"] for answer in answers} == {"joined"}
    assert attestor.seen.count(b"good") == 7
    # The two fresh ones came first, together; then one after the other.
    assert attestor.seen[:2] == [b"new", b"new"]
    assert attestor.most <= 2
    # What was verified and ended nobody is not suspected any more.
    assert len(left) == 1


async def test_request_that_ends_its_workers_is_answered_unavailable_the_third_time(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one machine's evidence stops a partition for ever: each worker that gets it dies of it."""
    monkeypatch.setattr(judging, "has_room", lambda: False)
    async with join_bench(database, crypto=CRYPTO) as bench:
        batch = await requests_of(bench, b"good", b"hog", b"good")
    for worker in ("w0", "w1"):
        async with join_bench(
            database, attestors=[Greedy()], crypto=CRYPTO, worker=worker
        ) as bench:
            with pytest.raises(OutOfMemory, match="greedy at test_attempts"):
                await bench.ask(*batch)
    last = Greedy()
    for worker in ("w0", "w2"):
        async with join_bench(database, attestors=[last], crypto=CRYPTO, worker=worker) as bench:
            answers = await bench.ask(*batch)
            rows = await bench.one("SELECT count(*) FROM inbox")
        assert [answer["outcome"] for answer in answers] == ["joined", "failed", "joined"]
        assert answers[1]["failed"]["code"] == "UNAVAILABLE"
        assert rows == 2
    assert b"hog" not in last.seen


async def test_size_that_is_absurd_costs_its_own_join(database: str) -> None:
    """Evidence may name a length. Nothing was allocated, and nobody has lost anything: no reason to end."""
    async with join_bench(database, attestors=[Greedy()], crypto=CRYPTO) as bench:
        answers = await bench.ask(*await requests_of(bench, b"hog", b"good"))
    assert [answer["outcome"] for answer in answers] == ["failed", "joined"]


async def test_worker_that_ends_after_the_verification_counts_nothing(database: str) -> None:
    """Workers are killed for many reasons. A request that was verified without harm is not what ended them."""

    def killed() -> None:
        raise asyncio.CancelledError

    async with join_bench(database, crypto=CRYPTO) as bench:
        batch = await requests_of(bench, b"good")
    for _ in range(5):
        async with join_bench(
            database, attestors=[Greedy()], crypto=CRYPTO, before_commit=killed
        ) as bench:
            with pytest.raises(asyncio.CancelledError):
                await bench.ask(*batch)
    async with join_bench(database, attestors=[Greedy()], crypto=CRYPTO) as bench:
        assert [a["outcome"] for a in await bench.ask(*batch)] == ["joined"]


async def test_what_others_begin_is_looked_at_again_when_partitions_come(database: str) -> None:
    """A worker that has run for days gets the partitions of one that ended a moment ago."""
    attestor = Greedy()
    async with join_bench(database, attestors=[attestor], crypto=CRYPTO, worker="w1") as bench:
        batch = await requests_of(bench, *[b"good"] * 4)
        await bench.ask(*await requests_of(bench, b"before"))
        await begun(database, batch)
        bench.engine.taken_over()
        attestor.most = 0
        answers = await bench.ask(*batch)
    assert {answer["outcome"] for answer in answers} == {"joined"}
    assert attestor.most == 1


async def test_ordinary_batch_is_written_down_without_a_statement_of_its_own(
    database: str,
) -> None:
    """Nobody may pay for this but who comes after a worker that ended."""
    async with join_bench(database, attestors=[Greedy()], crypto=CRYPTO) as bench:
        await bench.ask(*await requests_of(bench, b"good"))
        counted: list[str] = []
        session = await bench.engine._store.session()
        connection = session.connection  # type: ignore[attr-defined]
        connection.add_query_logger(lambda record: counted.append(record.query))
        await bench.engine._store.release(session, broken=False)
        batch = await requests_of(bench, b"good")
        await bench.ask(*batch)
        written = await bench.fetch("SELECT worker, digests FROM judging")
    assert [(r["worker"], r["digests"]) for r in written] == [("w0", [sha256(batch[0]).digest()])]
    assert sum("INTO judging" in query for query in counted) == 1
    assert not any("attempts" in query for query in counted)
