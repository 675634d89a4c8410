"""Asking another attestor: what it proves counts in full, and nothing that whoever asks makes of it counts more."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from uuid_utils.compat import uuid7

from tests.support.attestors.scripted import Script, Scripted
from tests.support.joins import Bench, join_bench
from tests.support.proving import last_reason
from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    Subject,
    refuser,
)
from watchword.handlers.errors import NotProvable, Refused
from watchword.schemas.ids import NodeId, TenantId, UnverifiedPayload

GRANT = Admission(TenantId("acme"), "node", "web")


def test_admission_carries_what_was_proved() -> None:
    """Place and kinds stay those of whoever asks; what is known of the machine is both's."""
    node = NodeId(uuid7())
    ours = Admission(TenantId("acme"), "node", "web", subjects=(Subject("image", "i"),))
    proof = Admission(
        TenantId("globex"),
        "node",
        "db",
        site="paris",
        node_id=node,
        bind=bytes(32),
        allowed_kinds=("disk.wipe",),
        hardware_key="ek",
        subjects=(Subject("ek", "k"), Subject("image", "i")),
        certificate=b"c" * 32,
    )
    carrying = ours.carrying(proof)

    assert (carrying.tenant, carrying.pool, carrying.site) == ("acme", "web", None)
    assert (carrying.bind, carrying.allowed_kinds) == (None, None)
    assert (carrying.node_id, carrying.hardware_key, carrying.certificate) == (
        node,
        "ek",
        b"c" * 32,
    )
    assert carrying.subjects == (Subject("image", "i"), Subject("ek", "k"))
    assert carrying.carrying(proof) == carrying


def test_proofs_that_contradict_each_other_are_none() -> None:
    """Two hardware keys are two machines."""
    ours = Admission(TenantId("acme"), "node", "web", hardware_key="one")
    with pytest.raises(ValueError, match="contradict"):
        ours.carrying(Admission(TenantId("acme"), "node", "web", hardware_key="another"))


Asks = Callable[[Evidence, JoinContext], Awaitable[Admission | Deferral]]


class Asking:
    """Asks `scripted` in whatever way a test wants."""

    id = "asking"
    version = "1"
    roles = frozenset(("node",))

    def __init__(self, how: Asks) -> None:
        """Verify like this."""
        self._how = how

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Do as the test says."""
        return await self._how(evidence, context)


async def _ask(bench: Bench, script: Script) -> str:
    [answer] = await bench.ask(bench.machine().request(script.encode(), attestor="asking"))
    failed = answer.get("failed")
    return str(failed["code"] if failed else answer["outcome"])


async def _carries(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
    proof = await context.others.prove("scripted", evidence.payload)
    return proof if isinstance(proof, Challenge) else GRANT.carrying(proof)


async def _forgets(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
    await context.others.prove("scripted", evidence.payload)
    return GRANT


async def _defers_and_forgets(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
    await context.others.prove("scripted", evidence.payload)
    return context.request_approval(bytes(32), GRANT)


async def _swallows(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
    try:
        return await _carries(evidence, context)
    except (Refused, NotProvable):
        return GRANT


async def _asks_twice(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
    await context.others.prove("scripted", evidence.payload)
    return await _carries(evidence, context)


async def _shows_no_bytes(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
    del evidence
    await context.others.prove("scripted", UnverifiedPayload("text"))  # type: ignore[arg-type]  # what an author may do
    return GRANT


HARD = Script(hardware_key="hw", subjects=(("serial", "s1"),), bind="b", uses=(("u", None),))


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("how", "script", "said"),
    [
        (_carries, HARD, "joined"),
        (_forgets, HARD, "UNAVAILABLE"),
        (_forgets, Script(), "joined"),
        (_defers_and_forgets, HARD, "UNAVAILABLE"),
        (_forgets, Script(rounds=2), "UNAVAILABLE"),
        (_carries, Script(way="refuse"), "refused"),
        (_swallows, Script(way="refuse"), "refused"),
        (_swallows, Script(way="raise"), "UNAVAILABLE"),
        (_carries, Script(way="junk", detail="none"), "UNAVAILABLE"),
        (_carries, Script(role="site"), "UNAVAILABLE"),
        (_asks_twice, Script(), "UNAVAILABLE"),
        (_shows_no_bytes, Script(), "UNAVAILABLE"),
    ],
    ids=[
        "carries",
        "forgets-the-proof",
        "nothing-to-carry",
        "forgets-it-in-a-grant",
        "forgets-the-challenge",
        "refused",
        "refusal-swallowed",
        "broken",
        "junk",
        "another-role",
        "asks-twice",
        "no-bytes",
    ],
)
async def test_proof_counts_for_what_it_is(
    database: str, how: Asks, script: Script, said: str
) -> None:
    """An author who forgets, swallows or muddles what the other said admits nobody by it."""
    async with join_bench(database, attestors=[Asking(how), Scripted()]) as bench:
        await bench.place("acme", "web")
        assert await _ask(bench, script) == said
        if said == "refused":
            assert await last_reason(bench) == "scripted:no"
        assert await bench.one("SELECT count(*) FROM nodes") == (said == "joined")


@pytest.mark.postgres
async def test_effects_of_the_proof_are_under_its_own_id(database: str) -> None:
    """What `scripted` binds and uses up is bound and used up for `scripted`, as in a join of its own."""
    async with join_bench(database, attestors=[Asking(_carries), Scripted()]) as bench:
        await bench.place("acme", "web")
        assert await _ask(bench, HARD) == "joined"
        bound = await bench.fetch("SELECT attestor FROM node_bindings ORDER BY 1")
        used = await bench.fetch("SELECT attestor FROM attestation_uses")
        [alone] = await bench.ask(
            bench.machine().request(Script(uses=(("u", None),)).encode(), attestor="scripted")
        )

        assert [row[0] for row in bound] == ["@hardware-key", "scripted"]
        assert [row[0] for row in used] == ["scripted"]
        assert alone["outcome"] == "refused"
        assert await last_reason(bench) == "scripted:replayed"


@pytest.mark.postgres
async def test_effects_of_a_proof_that_is_deferred_are_none(database: str) -> None:
    """While an operator is asked, what the proof would use up stays free."""

    async def waits(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        proof = await context.others.prove("scripted", evidence.payload)
        assert isinstance(proof, Admission)
        return context.request_approval(bytes(32), GRANT.carrying(proof))

    async with join_bench(database, attestors=[Asking(waits), Scripted()]) as bench:
        await bench.place("acme", "web")
        assert await _ask(bench, HARD) == "deferred"
        assert await bench.one("SELECT count(*) FROM attestation_uses") == 0
        assert await bench.one("SELECT count(*) FROM node_bindings") == 0


@pytest.mark.postgres
@pytest.mark.parametrize("other", ["asking", "lane", "of-sites", "not-installed", "inner"])
async def test_not_everybody_can_be_asked(database: str, other: str) -> None:
    """Not oneself, nor who brings SQL, lacks the role or is not there; and who is asked can ask nobody."""
    refuse = refuser("asking")

    async def asks(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        try:
            await context.others.prove(other, evidence.payload)
        except NotProvable:
            reason = "no-proof"
            raise refuse(reason) from None
        return GRANT

    class Inner(Scripted):
        async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
            await context.others.prove("scripted", evidence.payload)
            return GRANT

    attestors = [
        Asking(asks),
        Scripted(),
        Scripted("lane", uses_tx=True),
        Scripted("of-sites", roles=frozenset(("site",))),
        Inner("inner"),
    ]
    async with join_bench(database, attestors=attestors) as bench:
        await bench.place("acme", "web")
        assert await _ask(bench, Script()) == "refused"
        assert await bench.one("SELECT count(*) FROM nodes") == 0


@pytest.mark.postgres
async def test_state_of_the_other_is_its_own(database: str) -> None:
    """Inside a state of whoever asks it travels; by itself it opens for nobody but the other, and only as its."""

    async def rounds(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        proof = await context.others.prove("scripted", evidence.payload, context.open_state())
        if isinstance(proof, Challenge):
            state = context.seal_state(proof.state, timedelta(minutes=1))
            return Challenge(proof.challenge, state, proof.not_after)
        return GRANT.carrying(proof)

    from watchword.schemas.canonical import unb64  # noqa: PLC0415 - here alone

    async with join_bench(database, attestors=[Asking(rounds), Scripted()]) as bench:
        await bench.place("acme", "web")
        machine, payload = bench.machine(), Script(rounds=2).encode()
        [challenged] = await bench.ask(machine.request(payload, attestor="asking"))
        state = unb64(challenged["deferred"]["state"])
        [straight] = await bench.ask(machine.request(payload, attestor="scripted", state=state))
        [answer] = await bench.ask(machine.request(payload, attestor="asking", state=state))

        assert straight["outcome"] != "joined"
        assert answer["outcome"] == "joined"
