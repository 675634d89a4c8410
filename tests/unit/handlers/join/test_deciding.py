"""The decision under the locks, case by case: no database, no time, no chance."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.deciding import (
    BOUND,
    NODE,
    NOW,
    SUBJECT,
    TOKEN,
    admission,
    admit,
    candidate,
    decided,
    digest,
    node,
    said,
    spends,
    state,
    uses,
    world,
)
from watchword.handlers.attestor import Admission, Approval
from watchword.handlers.errors import Refused
from watchword.handlers.join.approvals import ApprovalRules, Waiting, new_request, snapshot_of
from watchword.handlers.join.candidate import (
    Again,
    Candidate,
    Judgement,
    NotJudged,
    Refusal,
    Waits,
)
from watchword.handlers.join.deciding import World, csr_claim, decide, key_claim
from watchword.handlers.rows import NewRequest, NodeRow, RequestRow, TokenState
from watchword.schemas.ids import AttestorId, TenantId


def test_admission_that_nobody_disputes_stands() -> None:
    one = candidate(admit(staged=spends(), bindings=(BOUND,)))
    effects = decide([one], world([one], tokens=state(2)))
    assert said(one) == "Admit"
    assert effects.spends == {TOKEN: 1}
    assert effects.bindings.keys() == {BOUND}
    assert effects.admissions.keys() == {csr_claim(one), key_claim(one)}
    assert effects.admitted == [one]


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        pytest.param({}, "acme-asset:revoked", id="gone"),
        pytest.param(state(revoked=True), "acme-asset:revoked", id="revoked"),
        pytest.param(state(expires_at=NOW), "acme-asset:expired", id="expired this moment"),
        pytest.param(state(0), "acme-asset:used-up", id="used up by others"),
    ],
)
def test_token_is_looked_at_again_under_its_lock(
    tokens: dict[str, TokenState], reason: str
) -> None:
    """What was good when it was read may be revoked, expired or used up by now."""
    one = candidate(admit(staged=spends()))
    effects = decide([one], world([one], tokens=tokens))
    assert said(one) == reason
    assert not effects.admitted
    assert not effects.spends


def test_token_is_good_to_its_last_moment() -> None:
    tokens = state(expires_at=NOW + timedelta(microseconds=1))
    assert decided([candidate(admit(staged=spends()))], tokens=tokens) == ["Admit"]


def test_uses_of_the_batch_are_counted_in_arrival_order() -> None:
    """The first come; the rest is refused, whoever has not read the token."""
    batch = [candidate(admit(staged=spends())) for _ in range(4)]
    assert decided(batch, tokens=state(2)) == ["Admit"] * 2 + ["acme-asset:used-up"] * 2


def test_several_uses_are_taken_whole_or_not_at_all() -> None:
    batch = [candidate(admit(staged=spends(2))) for _ in range(2)] + [
        candidate(admit(staged=spends()))
    ]
    assert decided(batch, tokens=state(3)) == ["Admit", "acme-asset:used-up", "Admit"]


def test_whoever_read_an_exhausted_token_is_verified_again() -> None:
    """Its attestor, not we, says what it makes of a token that is used up."""
    first, second, third = (candidate(admit(staged=spends())) for _ in range(3))
    refused = candidate(Refusal(Refused(AttestorId("acme-asset"), "expect")))
    for one in (first, second, third, refused):
        one.reads.add(("token", TOKEN))
    assert decided([first, second, third, refused], tokens=state(2)) == [
        "Admit",
        "Admit",
        "Rejudge",
        "Rejudge",
    ]


def test_refusal_before_the_change_stands() -> None:
    refused = candidate(Refusal(Refused(AttestorId("acme-asset"), "expect")))
    refused.reads.add(("token", TOKEN))
    assert decided([refused, candidate(admit(staged=spends()))], tokens=state(1)) == [
        "acme-asset:expect",
        "Admit",
    ]


def test_use_once_is_won_once() -> None:
    """In the batch by the first; against other workers by whoever inserted the row."""
    batch = [candidate(admit(staged=uses())) for _ in range(2)]
    assert decided(batch) == ["Admit", "acme-asset:replayed"]
    lost = candidate(admit(staged=uses()))
    assert decided([lost], uses_won=set()) == ["acme-asset:replayed"]


def test_use_of_a_refused_one_is_free_for_the_next() -> None:
    """Only admitted requests leave effects."""
    banned = candidate(admit(staged=uses(), ban_subjects=(b"x",)))
    second = candidate(admit(staged=uses()))
    assert decided([banned, second], banned={b"x"}) == ["join:banned", "Admit"]


def test_same_csr_later_in_the_batch_waits_for_the_first() -> None:
    """Whatever was thought of it: the next attempt finds the admission, and repeats it."""
    first = candidate(admit(), csr="same")
    others: list[Judgement] = [
        admit(),
        Refusal(Refused(AttestorId("acme-asset"), "no")),
        NotJudged(4, "claims-malformed"),
    ]
    batch = [first, *(candidate(judgement, csr="same") for judgement in others)]
    assert decided(batch) == ["Admit", "Rejudge", "Rejudge", "Rejudge"]


def test_same_csr_earlier_in_the_batch_does_not() -> None:
    batch = [
        candidate(Refusal(Refused(AttestorId("acme-asset"), "no")), csr="same"),
        candidate(admit(), csr="same"),
    ]
    assert decided(batch) == ["acme-asset:no", "Admit"]


@pytest.mark.parametrize(
    ("stands", "outcome"), [(True, "Again"), (False, "join:csr-reused")], ids=str
)
def test_csr_that_another_worker_admitted_is_that_admission(*, stands: bool, outcome: str) -> None:
    one = candidate(admit(), csr="lost")
    lost = {digest("lost"): admission("lost", stands=stands)}
    assert decided([one], admissions_won={key_claim(one)}, admitted_csrs=lost) == [outcome]


def test_csr_that_was_lost_to_nobody_is_judged_again() -> None:
    one = candidate(admit())
    assert decided([one], admissions_won={key_claim(one)}) == ["Rejudge"]


def test_repeated_admission_is_as_it_stands_now() -> None:
    """It was read as good; under the locks it may have been superseded."""
    first, second = admission("one"), admission("two", of=UUID(int=5))
    batch = [candidate(Again(first)), candidate(Again(second))]
    locked = {digest("one"): first, digest("two"): replace(second, stands=False)}
    assert decided(batch, admitted_csrs=locked) == ["Again", "join:csr-reused"]


def test_repeated_admission_of_a_node_that_the_batch_rekeyed_is_judged_again() -> None:
    """Its certificate is superseded by then."""
    rekey = candidate(admit(node_id=NODE, rekeys=node()))
    again = candidate(Again(admission("old")))
    assert decided([rekey, again], nodes={NODE: node()}) == ["Admit", "Rejudge"]
    assert decided([again, rekey], nodes={NODE: node()}) == ["Rejudge", "Admit"]


def test_key_is_one_nodes() -> None:
    """The second with a key is refused, in the batch and against other workers."""
    batch = [candidate(admit(), key="same"), candidate(admit(), key="same")]
    assert decided(batch) == ["Admit", "join:key-in-use"]
    one = candidate(admit())
    holders = {key_claim(one): UUID(int=5)}
    won = {csr_claim(one)}
    assert decided([one], admissions_won=won, admission_holders=holders) == ["join:key-in-use"]


def test_node_may_keep_its_key() -> None:
    one = candidate(admit(node_id=NODE, rekeys=node()))
    assert decided(
        [one],
        nodes={NODE: node()},
        admissions_won={csr_claim(one)},
        admission_holders={key_claim(one): NODE},
    ) == ["Admit"]


def test_key_that_was_lost_to_nobody_is_judged_again() -> None:
    """Without the claim two nodes could have it."""
    one = candidate(admit())
    assert decided([one], admissions_won={csr_claim(one)}) == ["Rejudge"]


@pytest.mark.parametrize(
    ("worse", "reason"),
    [
        pytest.param({"key": "taken"}, "join:key-in-use", id="key"),
        pytest.param({"staged": spends()}, "acme-asset:used-up", id="token"),
        pytest.param({"ban_subjects": (b"x",)}, "join:banned", id="ban"),
        pytest.param({}, "join:not-allowed", id="objection"),
    ],
)
def test_first_check_that_fails_is_the_reason(worse: dict[str, Any], reason: str) -> None:
    """Key, token, ban, objection, in this order, whatever else is wrong."""
    key = worse.pop("key", "")
    objection = Refused(AttestorId("join"), "not-allowed")
    one = candidate(admit(objection=objection, **worse), key=key)
    later: dict[str, Any] = {"staged": uses(), "bindings": (BOUND,)}
    two = candidate(
        admit(objection=objection, **{"ban_subjects": (b"x",), **later, **worse}), key=key
    )
    holders = {("key", digest("taken")): UUID(int=5)}
    changes: dict[str, Any] = {"tokens": state(0), "admission_holders": holders}
    assert decided([one], banned={b"x"}, **changes)[0] == reason
    if reason != "join:not-allowed":
        assert decided([two], banned={b"x"}, **changes)[0] == reason


@pytest.mark.parametrize(
    ("locked", "outcome"),
    [
        pytest.param(node(), "Admit", id="as it was read"),
        pytest.param(None, "Rejudge", id="gone"),
        pytest.param(node(state="banned"), "Rejudge", id="banned since"),
        pytest.param(node(generation=2), "Rejudge", id="re-keyed since"),
        pytest.param(node(pool="db"), "Rejudge", id="moved since"),
    ],
)
def test_node_is_rekeyed_as_it_was_read(locked: NodeRow | None, outcome: str) -> None:
    """Anything else is judged again, on what it is now."""
    one = candidate(admit(node_id=NODE, rekeys=node()))
    nodes = {} if locked is None else {NODE: locked}
    assert decided([one], nodes=nodes) == [outcome]


@pytest.mark.parametrize(
    ("holders", "outcome"),
    [
        pytest.param({BOUND: NODE}, "Admit", id="its own"),
        pytest.param({BOUND: UUID(int=5)}, "Rejudge", id="another node's by now"),
        pytest.param({}, "Rejudge", id="nobody's any more"),
    ],
)
def test_binding_that_was_lost(holders: dict[Any, UUID], outcome: str) -> None:
    """A node without its binding would be another machine's to take."""
    one = candidate(admit(node_id=NODE, rekeys=node(), bindings=(BOUND,)))
    assert decided([one], nodes={NODE: node()}, bindings_won=set(), binding_holders=holders) == [
        outcome
    ]


def test_binding_that_the_batch_made_is_read_again() -> None:
    batch = [candidate(admit(bindings=(BOUND,))) for _ in range(2)]
    for one in batch:
        one.reads.add(("binding", BOUND))
    assert decided(batch) == ["Admit", "Rejudge"]


def test_read_of_a_node_that_the_batch_changed_is_read_again() -> None:
    """Also by one that was refused, or does not know the node otherwise."""
    rekey = candidate(admit(node_id=NODE, rekeys=node()))
    reads = candidate(Refusal(Refused(AttestorId("acme-asset"), "gone")))
    reads.reads.add(("node", NODE))
    other = candidate(Refusal(Refused(AttestorId("acme-asset"), "gone")))
    other.reads.add(("node", UUID(int=5)))
    assert decided([rekey, reads, other], nodes={NODE: node()}) == [
        "Admit",
        "Rejudge",
        "acme-asset:gone",
    ]


# Waiting for an operator

GRANT = Admission(tenant=TenantId("acme"), role="node", pool="web", site="ber1")


def waits(*, ban_subjects: tuple[bytes, ...] = ()) -> Waits:
    return Waits(Approval(SUBJECT, GRANT), ban_subjects, NOW + timedelta(seconds=30))


def waiting_world(
    candidates: list[Candidate], rules: ApprovalRules, prepare: Callable[[Waiting], None]
) -> World:
    """Return a world in which every waiting candidate has inserted its row."""
    made = world(candidates)
    made.waiting = Waiting(rules, NOW)
    wanted_requests: dict[bytes, NewRequest] = {}
    made.wanted_requests = wanted_requests
    for number, one in enumerate(candidates):
        if isinstance(one.judgement, Waits):
            wanted = new_request(one, one.judgement.approval, UUID(int=number))
            wanted_requests[one.digest] = wanted
            made.waiting.made.add(wanted.key)
            made.waiting.rows[wanted.key] = RequestRow(
                wanted.key, wanted.id, "pending", 1, wanted.snapshot, NOW + timedelta(days=1)
            )
    prepare(made.waiting)
    return made


def test_waiting_is_capped_by_tenant_and_by_site_in_arrival_order() -> None:
    batch = [candidate(waits()) for _ in range(4)]
    for rules in (ApprovalRules(per_tenant=2), ApprovalRules(per_site=2)):
        for one in batch:
            one.judgement = waits()
        decide(batch, waiting_world(batch, rules, lambda _: None))
        assert [said(one) for one in batch] == ["Waits"] * 2 + ["join:too-many-waiting"] * 2


def test_ban_refuses_what_would_wait() -> None:
    """An operator who banned a subject must not be asked about it."""
    one = candidate(waits(ban_subjects=(b"x",)))
    made = waiting_world([one], ApprovalRules(), lambda _: None)
    made.banned = {b"x"}
    decide([one], made)
    assert said(one) == "join:banned"


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        pytest.param({}, "Waits", id="waits already"),
        pytest.param({"state": "approved"}, "Rejudge", id="approved since"),
        pytest.param({"state": "rejected"}, "acme-asset:rejected", id="rejected"),
        pytest.param({"state": "rejected", "expires_at": NOW}, "Waits", id="rejected long ago"),
        pytest.param({"state": "rejected", "snapshot": b"{}"}, "Waits", id="rejected otherwise"),
        pytest.param({"state": "consumed"}, "Waits", id="consumed"),
    ],
)
def test_request_that_is_there_already(row: dict[str, Any], outcome: str) -> None:
    one = candidate(waits())

    def found(waiting: Waiting) -> None:
        (key,) = waiting.made
        waiting.rows[key] = replace(waiting.rows[key], **row)
        waiting.made.clear()

    decide([one], waiting_world([one], ApprovalRules(), found))
    assert said(one) == outcome


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        pytest.param({}, "Admit", id="approved"),
        pytest.param({"state": "consumed"}, "Rejudge", id="consumed since"),
        pytest.param({"state": "rejected"}, "Rejudge", id="taken back"),
        pytest.param({"expires_at": NOW}, "Rejudge", id="expired"),
        pytest.param({"snapshot": b"{}"}, "Rejudge", id="another grant"),
        pytest.param(None, "Rejudge", id="gone"),
    ],
)
def test_approval_is_consumed_as_it_was_given(row: dict[str, Any] | None, outcome: str) -> None:
    """The operator's word is for this grant, once."""
    snapshot = snapshot_of(GRANT)
    one = candidate(admit(approval=(SUBJECT, snapshot)))
    assert one.csr is not None
    key = ("acme-asset", SUBJECT, one.csr.sha256)
    made = world([one])
    made.waiting = Waiting(ApprovalRules(), NOW)
    if row is not None:
        good = RequestRow(key, NODE, "approved", 1, snapshot, NOW + timedelta(days=1))
        made.waiting.rows[key] = replace(good, **row)
    decide([one], made)
    assert said(one) == outcome
    assert made.waiting.consumed == ({key} if outcome == "Admit" else set())
