"""The decision under the locks: what was read or granted is looked at again, and what is done is noted."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.deciding import (
    BOUND,
    GRANT,
    LAST,
    MOMENT,
    NODE,
    NOW,
    OTHER,
    SUBJECT,
    TOKEN,
    admission,
    admit,
    anew,
    candidate,
    decided,
    digest,
    node,
    refused,
    rekey,
    said,
    spends,
    state,
    uses,
    waits,
    world,
)
from watchword.handlers.attestor import Admission, Subject
from watchword.handlers.join.approvals import ApprovalRules, Waiting, new_request
from watchword.handlers.join.candidate import Admit, Candidate, Judgement, NotJudged
from watchword.handlers.join.deciding import csr_claim, decide, key_claim, may_be_admitted
from watchword.handlers.rows import GrantRow, RequestRow
from watchword.schemas.ids import TenantId

# Reads


ROW = ("site", 5)


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        (tuple(["site", 5]), "Admit"),  # noqa: C409 - equal, and another object
        (("site", 4), "Rejudge"),
        (("site", 6), "Rejudge"),
    ],
)
def test_what_a_verifier_read_is_compared_with_what_is_there_now(now: object, outcome: str) -> None:
    """An image that an operator revoked a moment ago, admits nobody."""
    one = candidate(admit())
    one.seen = {("image", "a"): ROW, ("image", "none"): None, ("image", "b"): ROW}
    seen = {("image", "a"): ROW, ("image", "b"): now}
    assert decided([one], seen=seen) == [outcome]
    assert one.judgement is not None
    one.judgement = waits()
    assert decided([one], seen=seen) == ["Rejudge"]  # also because it has no row yet


def test_row_that_came_or_went_since_is_a_change() -> None:
    """Nothing there, is something that was read as well."""
    one = candidate(admit())
    one.seen = {("image", "a"): ROW}
    assert decided([one]) == ["Rejudge"]
    other = candidate(admit())
    other.seen = {("image", "a"): None}
    assert decided([other], seen={("image", "a"): ROW}) == ["Rejudge"]


def test_changes_count_for_those_who_read_them_and_for_nobody_else() -> None:
    """Every busy batch changes nodes; who has read others is not sent round again for it."""

    def batch(read: UUID) -> list[Candidate]:
        made = [candidate(rekey()), candidate(waits()), candidate(refused()), candidate(admit())]
        for one in made[1:]:
            one.reads |= {("node", read), ("token", "unread")}
        return made

    for read, outcomes in (
        (NODE, ["Rejudge"] * 3),
        (OTHER, ["Waits", "acme-asset:no", "Admit"]),
    ):
        made = batch(read)
        the_world = world(made, nodes={NODE: node()})
        wanted = new_request(made[1], waits().approval, OTHER)
        the_world.waiting = Waiting(ApprovalRules(), NOW)
        the_world.waiting.made.add(wanted.key)
        the_world.waiting.rows[wanted.key] = RequestRow(
            wanted.key, wanted.id, "pending", 1, wanted.snapshot, NOW + MOMENT
        )
        the_world.wanted_requests = {made[1].digest: wanted}
        decide(made, the_world)
        assert [said(one) for one in made[1:]] == outcomes
        # Whoever waits has a place from now on, and who is judged again has none yet.
        assert bool(the_world.waiting.kept) is (outcomes[0] == "Waits")


def test_everything_that_an_admission_changes_is_noted() -> None:
    """Who has read any of it, and was refused by that, is judged again on what it is now."""
    subject = Subject("ek", "1")
    granted = Admission(tenant=TenantId("acme"), role="node", pool="web", subjects=(subject,))
    first = rekey(admission=granted, staged=spends(), bindings=(BOUND,), grant=GRANT)
    grants = {GRANT: GrantRow(GRANT, NODE, "acme-asset", SUBJECT, NOW + MOMENT)}
    for read in (
        ("node", anew()),
        ("binding", BOUND),
        ("subject", subject.digest),
        ("token", TOKEN),
        ("grant", GRANT),
    ):
        reader = candidate(refused())
        reader.reads.add(read)
        batch = [candidate(replace(first)), reader]
        changes: dict[str, Any] = {"nodes": {NODE: node()}, "tokens": state(1), "grants": grants}
        assert decided(batch, **changes) == ["Admit", "Rejudge"], read


def test_large_token_is_used_up_as_a_small_one_is() -> None:
    """The last of a thousand uses is a change for whoever reads the token."""
    reader = candidate(refused())
    reader.reads.add(("token", TOKEN))
    batch = [candidate(admit(staged=spends(1000))), reader]
    assert decided(batch, tokens=state(int("1000"))) == ["Admit", "Rejudge"]


@pytest.mark.parametrize(
    ("judgement", "change", "expected"),
    [
        (refused(), {}, True),
        (waits(), {}, True),
        (admit(), {}, False),
        (refused(), {"problem": NotJudged(4, "csr-malformed")}, False),
        (refused(), {"admitted_before": admission("known")}, False),
    ],
)
def test_refusal_or_waiting_beside_an_admission_of_the_same_csr_is_judged_again(
    judgement: Judgement, change: dict[str, Any], *, expected: bool
) -> None:
    """Two workers with one request: the second must not refuse what the first has just admitted."""
    one = candidate(judgement, csr="known")
    for name, value in change.items():
        setattr(one, name, value)
    assert may_be_admitted(one) is expected
    if not isinstance(judgement, Admit):
        before = said(one)
        found = decided([one], admitted_csrs={digest("known"): admission("known")})
        assert found == ["Rejudge" if expected else before]


def test_unread_candidate_is_never_settled() -> None:
    """A bug of ours must not claim rows for a CSR that nobody has read."""
    one = candidate(admit())
    assert csr_claim(one)[0] == "csr"
    assert key_claim(one)[0] == "key"
    one.csr = None
    for claim in (csr_claim, key_claim):
        with pytest.raises(RuntimeError, match=r"^the candidate was not read$"):
            claim(one)
    one.judgement = None
    with pytest.raises(RuntimeError, match=r"^a candidate without a judgement$"):
        decide([one], world([]))


@pytest.mark.parametrize("missing", ["waiting", "wanted"])
def test_waiting_without_its_row_is_judged_again(missing: str) -> None:
    """Nobody is told to wait for what no operator can see."""
    one = candidate(waits())
    made = world([one])
    if missing == "waiting":
        made.wanted_requests = {one.digest: new_request(one, waits().approval, OTHER)}
    else:
        made.waiting = Waiting(ApprovalRules(), NOW)
    decide([one], made)
    assert said(one) == "Rejudge"


# Grants


def granted(expires_at: timedelta = MOMENT) -> dict[UUID, GrantRow]:
    return {GRANT: GrantRow(GRANT, NODE, "acme-asset", SUBJECT, NOW + expires_at)}


@pytest.mark.parametrize(
    ("grants", "outcome"),
    [
        (granted(), "Admit"),
        (granted(timedelta(days=1)), "Admit"),
        (granted(timedelta(0)), "Rejudge"),
        (granted(-MOMENT), "Rejudge"),
        ({}, "Rejudge"),
    ],
)
def test_grant_counts_while_it_is_open(grants: dict[UUID, GrantRow], outcome: str) -> None:
    """Used by somebody else, withdrawn or expired since it was read: the machine is judged without it."""
    one = candidate(rekey(grant=GRANT))
    the_world = world([one], nodes={NODE: node()}, grants=grants)
    effects = decide([one], the_world)
    assert said(one) == outcome
    assert effects.grants == ({GRANT: one} if outcome == "Admit" else {})


def test_grant_is_used_by_one_machine() -> None:
    """The second of a batch has read it, and finds it gone."""
    batch = [candidate(rekey(grant=GRANT)), candidate(rekey(grant=GRANT))]
    for one in batch:
        one.reads.add(("grant", GRANT))
    assert decided(batch, nodes={NODE: node()}, grants=granted()) == ["Admit", "Rejudge"]


def test_admission_without_a_grant_uses_none() -> None:
    """Else the next reclaim would find an entry for nobody's grant."""
    one = candidate(admit())
    assert not decide([one], world([one])).grants


@pytest.mark.parametrize(
    ("grant", "holder", "outcome"),
    [
        (GRANT, anew(), "Admit"),
        (GRANT, OTHER, "acme-asset:replayed"),
        (GRANT, LAST, "acme-asset:replayed"),
        (GRANT, None, "acme-asset:replayed"),
        (None, anew(), "acme-asset:replayed"),
    ],
)
def test_grant_lets_a_node_use_again_what_it_used_up_itself(
    grant: UUID | None, holder: UUID | None, outcome: str
) -> None:
    """A cloud instance counts once for ever: an operator may bring its node back, and nobody else's."""
    one = candidate(rekey(grant=grant, staged=uses()))
    pair = ("acme-asset", SUBJECT)
    the_world = world(
        [one],
        nodes={NODE: node()},
        grants=granted(),
        uses_won=set(),
        use_holders={} if holder is None else {pair: holder},
    )
    effects = decide([one], the_world)
    assert said(one) == outcome
    assert not effects.uses  # the row that is there stays as it is
    if isinstance(one.judgement, Admit):
        assert one.judgement.reused == {pair}
