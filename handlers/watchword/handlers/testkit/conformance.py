"""What every attestor has to hold to, tried on the real service.

Subclass `AttestorConformance`, say how a machine that may join proves itself, and run pytest. Each test
is one promise, and its failure says what an attacker, or an operator, would make of the breach.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

import pytest

from watchword.handlers.attestor import Attestor, Claims, Role
from watchword.handlers.prover import Prover
from watchword.handlers.testkit.agent import JoinResult, run_agent_join
from watchword.handlers.testkit.breaking import Asked, Twice, mutations, strangers_bytes
from watchword.handlers.testkit.machine import Machine
from watchword.handlers.testkit.service import Refusal, ServiceUnderTest
from watchword.schemas.reasons import OTHER
from watchword.schemas.responses import JoinResponse

_TOGETHER = 5
"""Machines that race."""


@dataclass(frozen=True)
class _Step:
    """The evidence of one round, with the state that goes with it."""

    payload: bytes
    state: bytes | None


@pytest.mark.asyncio
class AttestorConformance:
    """The suite. Override what says so; what follows is about what you made."""

    rounds: ClassVar[int] = 1
    """How many rounds good evidence takes: one more than there are challenges."""
    role: ClassVar[Role] = "node"
    """A role that good evidence is for."""
    other_role: ClassVar[Role] = "site"
    """Another role, which the same evidence must not serve."""
    operator: ClassVar[Literal["absent", "approves"]] = "absent"
    """Whether good evidence needs an operator's word besides (`context.request_approval`)."""
    same_machine: ClassVar[Literal["refused", "its node"]] = "refused"
    """What becomes of a machine that has joined and comes again with another key and good, fresh evidence:
    it is refused, or gets the node that it is already. It must not become a second one."""
    is_bound_to_csr: ClassVar[bool] = True
    """Whether evidence says which CSR it is for. False is honest only for bearer secrets, and for clouds that
    sign no CSR; it has to be used up then."""
    good_for: ClassVar[timedelta | None] = None
    """How long evidence and challenges are good; None is for ever."""
    names_tenant_of_broken: ClassVar[bool] = False
    """Whether evidence with one bit changed may still authenticate a tenant, by a part that is whole."""
    most_mutations: ClassVar[int] = 64
    """How many changed copies of each round's evidence are tried."""

    def attestor(self) -> Attestor:
        """Override: return the attestor."""
        raise NotImplementedError

    async def prepare(self, service: ServiceUnderTest) -> None:
        """Override if other rows are needed: tenants, pools, the attestor's own tables."""
        await service.place("acme", "web")

    async def prover(self, service: ServiceUnderTest) -> Prover:
        """Override: return the prover of another machine each time, one that may join and has not."""
        raise NotImplementedError

    def claims(self) -> Claims:
        """Override if good evidence needs claims."""
        return Claims()

    # The promises

    async def test_good_evidence_is_admitted(self, join_service: ServiceUnderTest) -> None:
        """Or nothing below means anything. The certificate is for the machine's own key."""
        await self.prepare(join_service)
        joined = await self._joins(join_service)
        assert joined.certificate is not None
        assert "node.joined" in [event.type for event in joined.events]

    async def test_machines_join_together(self, join_service: ServiceUnderTest) -> None:
        """A spike is one batch: what one machine shows must not get in another's way."""
        await self.prepare(join_service)
        if self.operator == "approves":
            nodes = [(await self._joins(join_service)).node_id for _ in range(3)]
        else:
            requests: list[bytes] = []
            for _ in range(3):
                machine = join_service.machine()
                steps = await self._walk(join_service, await self.prover(join_service), machine)
                requests.append(self._request(machine, steps[-1]))
            nodes = [
                None if answer.joined is None else answer.joined.node_id
                for answer in await join_service.ask(*requests)
            ]
        assert None not in nodes, "a machine was kept out by others of its batch"
        assert len(set(nodes)) == len(nodes), "two machines became one node"

    async def test_evidence_of_another_csr_is_refused(self, join_service: ServiceUnderTest) -> None:
        """Whoever has seen evidence, in a log or a proxy, would join with a key of their own."""
        await self.prepare(join_service)
        prover, owner = await self.prover(join_service), join_service.machine()
        if self.is_bound_to_csr:
            payload = await prover.evidence(owner.csr_sha256, self.role)
        else:
            joined = await self._join(join_service, prover, owner)
            assert joined.outcome == "joined", joined.refusals
            payload = joined.rounds[0].payload
        await self._is_no_use(join_service, join_service.machine(), prover, owner, payload)

    async def test_replayed_rounds_make_no_node(self, join_service: ServiceUnderTest) -> None:
        """Every round of a join is sent again in order, under the same key and under another."""
        await self.prepare(join_service)
        joined = await self._joins(join_service)
        nodes = await self._nodes(join_service)
        for machine in (joined.machine, join_service.machine()):
            for sent in joined.rounds:
                await self._ask(join_service, machine, _Step(sent.payload, sent.state))
        assert await self._nodes(join_service) == nodes, "a replay made a node"

    async def test_machine_that_comes_again_is_no_second_node(
        self, join_service: ServiceUnderTest
    ) -> None:
        """One machine with many keys would be a fleet."""
        await self.prepare(join_service)
        prover = await self.prover(join_service)
        first = await self._join(join_service, prover)
        assert first.outcome == "joined", first.refusals
        again = await self._join(join_service, prover)
        if self.same_machine == "refused":
            assert again.outcome == "refused", f"it was {again.outcome}, as another node"
            _check_declared(again.refusals)
        else:
            assert again.outcome == "joined", again.refusals
            assert again.node_id == first.node_id, "one machine is two nodes"

    async def test_race_for_one_machine_has_one_winner(
        self, join_service: ServiceUnderTest
    ) -> None:
        """Several keys show the proof of one machine, in one batch, and in several batches at the same time."""
        await self.prepare(join_service)
        prover = await self.prover(join_service)
        results = await asyncio.gather(
            *(self._join(join_service, prover) for _ in range(_TOGETHER))
        )
        self._check_one_node([result.answer for result in results])
        if self.operator == "approves":
            return
        prover = await self.prover(join_service)
        requests: list[bytes] = []
        for _ in range(_TOGETHER):
            machine = join_service.machine()
            steps = await self._walk(join_service, prover, machine)
            requests.append(self._request(machine, steps[-1]))
        self._check_one_node(await join_service.ask(*requests))

    async def test_evidence_serves_one_role(self, join_service: ServiceUnderTest) -> None:
        """A node's evidence must not make a site's agent, whom a whole site believes."""
        await self.prepare(join_service)
        prover, machine = await self.prover(join_service), join_service.machine()
        payload = await prover.evidence(machine.csr_sha256, self.role)
        await self._is_no_use(join_service, machine, prover, machine, payload, role=self.other_role)

    async def test_changed_evidence_is_refused(self, join_service: ServiceUnderTest) -> None:
        """Bits turned round, bytes cut off, added, doubled, in every round: refused, by a declared reason."""
        await self.prepare(join_service)
        machine = join_service.machine()
        steps = await self._walk(join_service, await self.prover(join_service), machine)
        for step in steps:
            changed = mutations(step.payload, self.most_mutations)
            await self._are_kept_out(
                join_service, [(machine, _Step(payload, step.state)) for payload in changed]
            )

    async def test_strangers_bytes_are_refused(self, join_service: ServiceUnderTest) -> None:
        """Nothing, noise, other formats. `failed` would be a bug that anybody can trigger, and hides attacks."""
        await self.prepare(join_service)
        machine = join_service.machine()
        await self._are_kept_out(
            join_service, [(machine, _Step(payload, None)) for payload in strangers_bytes()]
        )

    async def test_rounds_hold_in_their_order_only(self, join_service: ServiceUnderTest) -> None:
        """An answer without its challenge, a beginning in place of an answer, two machines' rounds crossed."""
        if self.rounds == 1:
            return
        await self.prepare(join_service)
        machine = join_service.machine()
        mine = await self._walk(join_service, await self.prover(join_service), machine)
        others = await self._walk(
            join_service, await self.prover(join_service), join_service.machine()
        )
        last = mine[-1]
        for what, step in (
            ("an answer without its state", _Step(last.payload, None)),
            ("an answer under another machine's state", _Step(last.payload, others[-1].state)),
            ("another machine's answer", _Step(others[-1].payload, last.state)),
            ("a beginning in place of an answer", _Step(mine[0].payload, last.state)),
        ):
            answer = await self._ask(join_service, machine, step)
            assert answer.outcome != "joined", f"{what} was admitted"
            assert answer.outcome != "failed", f"{what}: `verify` raised, or returned nonsense"

    async def test_old_evidence_is_refused(self, join_service: ServiceUnderTest) -> None:
        """A backup, or a disk out of the bin, is full of old evidence."""
        if self.good_for is None:
            return
        await self.prepare(join_service)
        machine = join_service.machine()
        steps = await self._walk(join_service, await self.prover(join_service), machine)
        await join_service.advance(self.good_for + timedelta(seconds=1))
        answer = await self._ask(join_service, machine, steps[-1])
        assert answer.outcome == "refused", f"it was {answer.outcome} after its end"

    async def test_verifying_twice_is_verifying_once(self, join_service: ServiceUnderTest) -> None:
        """A batch is judged again when PostgreSQL was away: what `verify` did outside `context` is done twice."""
        own = self.attestor()
        if getattr(own, "uses_tx", False):
            return  # its rows are rolled back with the first run, by the database
        double = Twice(own)
        await join_service.replace(double)
        await self.prepare(join_service)
        result = await self._join(join_service, await self.prover(join_service))
        assert double.difference is None, f"verified twice, it came to {double.difference}"
        assert result.outcome == "joined", result.refusals

    async def test_refusal_writes_nothing(self, join_service: ServiceUnderTest) -> None:
        """Nothing but the refusal: no use spent, no row of the attestor's own."""
        await self.prepare(join_service)
        machine = join_service.machine()
        steps = await self._walk(join_service, await self.prover(join_service), machine)
        before = await join_service.fingerprint()
        for step in steps:
            await join_service.ask(
                *(
                    self._request(machine, _Step(payload, step.state))
                    for payload in mutations(step.payload, 8)
                )
            )
        after = await join_service.fingerprint()
        written = sorted(name for name in after if after[name] != before.get(name))
        assert written == [], f"a refusal changed {', '.join(written)}"

    async def test_refusals_are_the_same_outside(self, join_service: ServiceUnderTest) -> None:
        """A machine must not learn how far it came: one answer, of one length, whatever was wrong."""
        await self.prepare(join_service)
        machine = join_service.machine()
        steps = await self._walk(join_service, await self.prover(join_service), machine)
        wrong = [(payload, steps[-1].state) for payload in mutations(steps[-1].payload, 8)]
        wrong += [(payload, None) for payload in strangers_bytes()]
        answers = await join_service.ask(
            *(self._request(machine, _Step(payload, state)) for payload, state in wrong)
        )
        refused = [answer for answer in answers if answer.outcome == "refused"]
        assert refused != [], "nothing was refused"
        shapes = {len(answer.model_dump_json()) for answer in refused}
        assert len(shapes) == 1, f"refusals of several lengths: {shapes}"

    # How it is tried

    async def _joins(self, service: ServiceUnderTest) -> JoinResult:
        found = await self._join(service, await self.prover(service))
        why = ", ".join(f"{r.attestor}:{r.reason}" for r in found.refusals) or "see the log"
        assert found.outcome == "joined", f"good evidence was {found.outcome} ({why})"
        return found

    async def _join(
        self, service: ServiceUnderTest, prover: Prover, machine: Machine | None = None
    ) -> JoinResult:
        return await run_agent_join(
            service,
            prover,
            role=self.role,
            machine=machine,
            claims=self.claims(),
            operator=self.operator,
        )

    async def _walk(
        self, service: ServiceUnderTest, prover: Prover, machine: Machine
    ) -> list[_Step]:
        """Take a machine to its last round, and return all its rounds; the last is not sent."""
        steps = [_Step(await prover.evidence(machine.csr_sha256, self.role), None)]
        while len(steps) < self.rounds:
            answer = await self._ask(service, machine, steps[-1])
            asked = Asked.of(answer)
            assert asked is not None, f"round {len(steps)} of {self.rounds} was {answer.outcome}"
            payload = await prover.answer(asked.challenge, machine.csr_sha256, self.role)
            steps.append(_Step(payload, asked.state))
        return steps

    async def _is_no_use(
        self,
        service: ServiceUnderTest,
        thief: Machine,
        prover: Prover,
        owner: Machine,
        payload: bytes,
        role: Role | None = None,
    ) -> None:
        """Show a machine's evidence as another, who has the owner answer every challenge, or for another role."""
        answer = await self._ask(service, thief, _Step(payload, None), role)
        for _ in range(1, self.rounds):
            asked = Asked.of(answer)
            if asked is None:
                break
            answered = await prover.answer(asked.challenge, owner.csr_sha256, self.role)
            answer = await self._ask(service, thief, _Step(answered, asked.state), role)
        assert answer.outcome == "refused", f"it was {answer.outcome}"
        _check_declared(await service.refusals(csr_sha256=thief.csr_sha256))

    async def _are_kept_out(
        self, service: ServiceUnderTest, tried: Sequence[tuple[Machine, _Step]]
    ) -> None:
        answers = await service.ask(*(self._request(machine, step) for machine, step in tried))
        for (_, step), answer in zip(tried, answers, strict=True):
            shown = f"{len(step.payload)} bytes, {step.payload[:24].hex()}…"
            assert answer.outcome != "joined", f"admitted: {shown}"
            assert answer.outcome != "failed", f"`verify` raised, or returned nonsense: {shown}"
            if self.rounds == 1:
                assert answer.outcome == "refused", f"{answer.outcome}: {shown}"
        refusals = await service.refusals()
        _check_declared(refusals)
        if not self.names_tenant_of_broken:
            named = sorted({refusal.tenant for refusal in refusals} - {"root"})
            assert named == [], f"broken evidence named a tenant: {', '.join(named)}"

    def _check_one_node(self, answers: Sequence[JoinResponse]) -> None:
        failed = [answer for answer in answers if answer.outcome == "failed"]
        assert failed == [], "`verify` raised, or returned nonsense, in a race"
        nodes = {answer.joined.node_id for answer in answers if answer.joined is not None}
        assert len(nodes) == 1, f"{len(nodes)} nodes of one machine"

    async def _ask(
        self, service: ServiceUnderTest, machine: Machine, step: _Step, role: Role | None = None
    ) -> JoinResponse:
        [answer] = await service.ask(self._request(machine, step, role))
        return answer

    def _request(self, machine: Machine, step: _Step, role: Role | None = None) -> bytes:
        return machine.request(
            step.payload,
            attestor=self.attestor().id,
            role=role or self.role,
            claims=self.claims(),
            state=step.state,
        )

    async def _nodes(self, service: ServiceUnderTest) -> int:
        return int((await service.fetch("SELECT count(*) FROM nodes"))[0][0])


def _check_declared(refusals: Sequence[Refusal]) -> None:
    undeclared = [refusal for refusal in refusals if refusal.reason == OTHER]
    assert undeclared == [], "refused by a reason that is not declared: it folds into `other`"
