"""An attestor may be anybody's: whatever it returns, raises or does, it never admits and stops nobody."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from tests.support.attestors.junk import JUNK
from tests.support.attestors.scripted import Script, Scripted, Way
from tests.support.joins import Bench, code, join_bench
from tests.support.scenarios import Order
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext
from watchword.handlers.join.patience import LATE_IN_A_ROW
from watchword.handlers.service import JoinClock
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres

REFUSES = ("refuse-number", "refuse-list", "refuse-core")

EFFECTS = "SELECT (SELECT count(*) FROM nodes) + (SELECT count(*) FROM admission_claims) + (SELECT count(*) FROM attestation_uses) + (SELECT count(*) FROM node_bindings)"  # fmt: skip


async def test_junk_is_its_attestors_bug_and_nobody_elses(database: str) -> None:
    """A stranger's wrong type must neither admit, nor be a refusal, nor touch the other requests of a batch."""
    order = Order()
    async with join_bench(database, attestors=[Scripted()], observer=order) as bench:
        await bench.place("acme", "web")
        token = await bench.token(uses=1000)
        told: dict[str, str] = {}
        for kind in JUNK:
            script = Script(way="junk", detail=kind).encode()
            bad, good = await bench.ask(
                bench.machine().request(script, attestor="scripted"),
                bench.machine().request(token.payload),
            )
            told[kind] = code(bad)
            assert good["outcome"] == "joined", kind

        assert told == {kind: "refused" if kind in REFUSES else "UNAVAILABLE" for kind in JUNK}
        # Found at the seam: no batch had to be halved for it.
        assert order.halvings == 0
        assert order.retries == 0
        rows = await bench.fetch("SELECT attestor || ':' || reason, tenant FROM refusals")
        assert [tuple(row) for row in rows] == [("scripted:other", "root")] * len(REFUSES)
        assert await bench.one("SELECT count(*) FROM inbox") == len(JUNK) + len(REFUSES)
        assert await bench.one("SELECT count(*) FROM nodes") == len(JUNK)
        assert await bench.one("SELECT count(*) FROM attestation_uses") == 0


async def test_unavailable_invites_another_try(database: str) -> None:
    """A bug that was mended must let the same bytes in: `UNAVAILABLE` leaves no trace."""
    attestor = Scripted()
    async with join_bench(database, attestors=[attestor]) as bench:
        await bench.place("acme", "web")
        request = bench.machine().request(Script(way="raise").encode(), attestor="scripted")
        [first] = await bench.ask(request)
        assert code(first) == "UNAVAILABLE"
        assert await bench.one(EFFECTS) == 0
        assert await bench.one("SELECT count(*) FROM inbox") == 0
        assert await bench.one("SELECT count(*) FROM refusals") == 0

        async def mended(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
            del evidence
            return Admission(tenant=TenantId("acme"), role=context.role, pool="web")

        attestor.verify = mended  # type: ignore[method-assign]
        [second] = await bench.ask(request)
        assert second["outcome"] == "joined"


async def test_spends_with_a_deferral_are_a_bug_and_kept_by_nobody(database: str) -> None:
    """What is single-use would be gone before the machine has answered."""
    async with join_bench(database, attestors=[Scripted()]) as bench:
        script = Script(way="junk", detail="challenge-spends")
        [answer] = await bench.ask(bench.machine().request(script.encode(), attestor="scripted"))
        assert code(answer) == "UNAVAILABLE"
        assert await bench.one(EFFECTS) == 0


@pytest.mark.parametrize("way", ["hang", "deaf"])
async def test_late_verifier_does_not_hold_the_others_up(database: str, way: Way) -> None:
    """Also one that swallows its cancellation: everyone else gets their answer."""
    clock = JoinClock(verify_seconds=0.2)
    async with join_bench(database, attestors=[Scripted()], clock=clock) as bench:
        token = await bench.token()
        late, good = await bench.ask(
            bench.machine().request(Script(way=way).encode(), attestor="scripted"),
            bench.machine().request(token.payload),
        )
        assert code(late) == "UNAVAILABLE"
        assert good["outcome"] == "joined"
        assert await bench.one("SELECT count(*) FROM inbox") == 1


class Swallows(Scripted):
    """Takes its cancellation for a failed check that it may pass over."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Wait for a check that never ends, and admit without it."""
        del evidence
        with contextlib.suppress(BaseException):  # the mistake that authors make
            await asyncio.Event().wait()
        return Admission(tenant=TenantId("acme"), role=context.role, pool="web")


async def test_verdict_of_a_cancelled_verifier_counts_for_nothing(database: str) -> None:
    """It may have skipped the very check that took too long."""
    clock = JoinClock(verify_seconds=0.1)
    async with join_bench(database, attestors=[Swallows()], clock=clock) as bench:
        await bench.place("acme", "web")
        [answer] = await bench.ask(bench.machine().request(b"", attestor="scripted"))
        assert code(answer) == "UNAVAILABLE"
        assert await bench.one("SELECT count(*) FROM nodes") == 0


async def test_five_time_outs_in_a_row_rest_the_attestor(database: str) -> None:
    """A verifier whose back end hangs must not cost every batch its time limit; later it is asked again."""
    attestor = Scripted()
    clock = JoinClock(verify_seconds=0.2)
    async with join_bench(database, attestors=[attestor], clock=clock) as bench:
        token = await bench.token(uses=9)

        def ask(way: Way) -> bytes:
            return bench.machine().request(Script(way=way).encode(), attestor="scripted")

        # Four late ones and one in time: it is asked again.
        await bench.ask(*[ask("hang") for _ in range(LATE_IN_A_ROW - 1)], ask("refuse"))
        [answer] = await bench.ask(ask("refuse"))
        assert code(answer) == "refused"

        await bench.ask(*[ask("hang") for _ in range(LATE_IN_A_ROW)])
        calls = attestor.calls
        resting, other = await bench.ask(ask("admit"), bench.machine().request(token.payload))
        assert code(resting) == "UNAVAILABLE"
        assert other["outcome"] == "joined"
        assert attestor.calls == calls

        # By the time of the attempt, not of the process: the database's clock moves on.
        await _shift(bench, timedelta(seconds=31))
        [rested] = await bench.ask(ask("refuse"))
        assert code(rested) == "refused"


async def _shift(bench: Bench, by: timedelta) -> None:
    """Move the database's clock; the service's connections are ended, so that they see it."""
    name = await bench.one("SELECT quote_ident(current_database())")
    await bench.run(
        f"ALTER DATABASE {name} SET watchword.clock_shift = '{by.total_seconds()} seconds'"
    )
    await bench.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'watchword-test' AND datname = current_database()"
    )


class Catches(Scripted):
    """Takes a read that failed for a token that does not exist."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Read a token; refuse without it."""
        del evidence
        try:
            token = await context.tokens.get("0123456789abcdef")
        except Exception:  # noqa: BLE001 - the mistake that authors make
            token = None
        if token is None:
            raise self.refuse("no")  # noqa: EM101 - a name
        return Admission(tenant=token.tenant, role=context.role, pool=token.pool)


async def test_read_that_failed_is_no_verdict(database: str) -> None:
    """A database error inside `verify` must not become a refusal, whatever the verifier makes of it."""
    order = Order()
    async with join_bench(database, attestors=[Catches()], observer=order) as bench:
        await bench.place("acme", "web")
        await bench.run(
            "INSERT INTO tokens (id, secret_sha256, tenant, pool, role, uses_total, uses_left, created_by)"
            " VALUES ('0123456789abcdef', sha256('x'), 'acme', 'web', 'node', 1, 1, 'test')"
        )
        store: Any = bench.engine._store
        real = store.session

        async def dying() -> Any:  # noqa: ANN401 - a session
            session = await real()
            reading = session.tokens

            async def tokens(ids: Any) -> Any:  # noqa: ANN401 - as the session's
                session.tokens = reading
                await bench.fetch(
                    "SELECT pg_terminate_backend($1)", session.connection.get_server_pid()
                )
                return await reading(ids)

            if order.retries == 0:
                session.tokens = tokens
            return session

        store.session = dying
        [answer] = await bench.ask(bench.machine().request(b"", attestor="scripted"))
        assert answer["outcome"] == "joined"
        assert order.retries == 1
        assert await bench.one("SELECT count(*) FROM refusals") == 0


class LeavesWorkBehind(Scripted):
    """Goes on reading and staging after it has returned."""

    def __init__(self) -> None:
        """Keep what was left behind."""
        super().__init__()
        self.left: list[asyncio.Task[Any]] = []

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Admit, and go on."""
        del evidence

        async def go_on() -> None:
            for n in range(10_000):
                await asyncio.sleep(0)
                context.use_once(n.to_bytes(32, "big"))
                await context.bindings.get(n.to_bytes(32, "big"))

        self.left.append(asyncio.create_task(go_on()))
        return Admission(tenant=TenantId("acme"), role=context.role, pool="web")


async def test_work_that_a_verifier_leaves_behind_has_no_effect(database: str) -> None:
    """What comes after the verdict is neither staged nor read on the batch's connection."""
    attestor = LeavesWorkBehind()
    order = Order()
    async with join_bench(database, attestors=[attestor], observer=order) as bench:
        await bench.place("acme", "web")
        for _ in range(5):
            [answer] = await bench.ask(bench.machine().request(b"", attestor="scripted"))
            assert answer["outcome"] == "joined"
        assert order.retries == 0
        found = await asyncio.gather(*attestor.left, return_exceptions=True)
        assert {type(error) for error in found} == {RuntimeError}
        assert await bench.one("SELECT count(*) FROM attestation_uses") <= 5
