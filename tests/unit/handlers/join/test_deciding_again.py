"""The decision under the locks: what was read, granted or asked is looked at again, and what is done is noted."""

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
from tests.support.locked_commands import locked
from watchword.handlers.attestor import Admission, Approval, Staged, Subject
from watchword.handlers.errors import Refused, tried_digest
from watchword.handlers.join.approvals import ApprovalRules, Waiting, new_request
from watchword.handlers.join.candidate import (
    Admit,
    Candidate,
    Fetch,
    Judgement,
    NotJudged,
    Proof,
    Refusal,
    Theft,
    Waits,
)
from watchword.handlers.join.deciding import (
    csr_claim,
    decide,
    key_claim,
    may_be_admitted,
    use_claims,
)
from watchword.handlers.join.rows import (
    CertificateRow,
    GrantRow,
    LockedCommand,
    NodeRow,
    Renewable,
    RequestRow,
)
from watchword.schemas.ids import AttestorId, TenantId

OTHER = UUID(int=5)
LAST = UUID(int=1 << 120)
GRANT = UUID(int=9)
MOMENT = timedelta(microseconds=1)


def anew(of: UUID = NODE) -> UUID:
    """Return an id as another read of it makes it: equal, and another object."""
    return UUID(int=of.int)


def refusal_of(one: Candidate) -> Refused:
    assert isinstance(one.judgement, Refusal)
    return one.judgement.refused


def refused() -> Refusal:
    return Refusal(Refused(AttestorId("acme-asset"), "no"))


def waits(*ban_subjects: bytes) -> Waits:
    grant = Admission(tenant=TenantId("acme"), role="node", pool="web")
    return Waits(Approval(SUBJECT, grant), ban_subjects, NOW + timedelta(seconds=30))


def rekey(**changes: Any) -> Admit:  # noqa: ANN401 - any field
    return admit(node_id=NODE, rekeys=node(), **changes)


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


def test_uses_of_both_proofs_are_claimed_each_under_its_own_id() -> None:
    """Two attestors may name the same 32 bytes; neither uses up what is the other's."""
    second = Proof(AttestorId("tpm"), admit().admission, Staged(uses=[(SUBJECT, NOW)]))
    wanted = admit(staged=uses(), proof=second)
    one = candidate(wanted)
    claims = use_claims(one, wanted)
    assert claims == {("acme-asset", SUBJECT): None, ("tpm", SUBJECT): NOW}
    # What is claimed is what is written, whoever asks.
    assert use_claims(one, wanted) is claims
    won = set(claims)
    effects = decide([one], world([one], uses_won=won))
    assert effects.uses == {pair: (wanted.node_id, claims[pair]) for pair in won}
    lost = candidate(admit(staged=uses(), proof=second))
    assert decided([lost], uses_won={("acme-asset", SUBJECT)}) == ["tpm:replayed"]


# Reasons, and whose they are


@pytest.mark.parametrize(
    ("wanted", "changes", "reason", "tried"),
    [
        ({}, {"admission_holders": "key"}, "join:key-in-use", None),
        ({"ban_subjects": (b"x",)}, {"banned": {b"x"}}, "join:banned", None),
        ({"staged": uses()}, {"uses_won": set()}, "acme-asset:replayed", None),
        *(
            (
                {"staged": spends()},
                {"tokens": tokens},
                f"acme-asset:{reason}",
                tried_digest("acme-asset", TOKEN),
            )
            for tokens, reason in (
                ({}, "revoked"),
                (state(expires_at=NOW + timedelta(0)), "expired"),
                (state(expires_at=NOW - timedelta(days=1)), "expired"),
                (state(0), "used-up"),
            )
        ),
    ],
)
def test_refusal_under_the_locks_says_the_tenant_and_the_credential(
    wanted: dict[str, Any], changes: dict[str, Any], reason: str, tried: bytes | None
) -> None:
    """The tenant's own stream and the operator who searches for a token find it by these."""
    one = candidate(admit(**wanted))
    if changes.get("admission_holders") == "key":
        changes = {"admission_holders": {key_claim(one): OTHER}}
    assert decided([one], **changes) == [reason]
    assert (refusal_of(one).tenant_id, refusal_of(one).tried) == ("acme", tried)


def test_uses_that_are_left_are_counted_and_not_compared_bit_by_bit() -> None:
    """One of two uses is gone: two more are not to be had."""
    batch = [candidate(admit(staged=spends())), candidate(admit(staged=spends(2)))]
    assert decided(batch, tokens=state(2)) == ["Admit", "acme-asset:used-up"]


@pytest.mark.parametrize("holder", [OTHER, LAST])
def test_key_and_binding_of_another_node_are_its_own(holder: UUID) -> None:
    """Whichever node is the older one."""
    one = candidate(rekey(bindings=(BOUND, ("acme-asset", b"c" * 32))))
    changes: dict[str, Any] = {"nodes": {NODE: node()}}
    assert decided([one], admission_holders={key_claim(one): holder}, **changes) == [
        "join:key-in-use"
    ]
    # The first is free; the second is not.
    one = candidate(rekey(bindings=(BOUND, ("acme-asset", b"c" * 32))))
    holders = {("acme-asset", b"c" * 32): holder}
    changes |= {"bindings_won": {BOUND}, "binding_holders": holders}
    assert decided([one], **changes) == ["Rejudge"]


def test_node_may_keep_its_key_and_bindings_wherever_its_id_was_read() -> None:
    """A node that comes back with the same TPM is no other machine."""
    one = candidate(rekey(bindings=(BOUND,)))
    assert decided(
        [one],
        nodes={anew(): node()},
        admissions_won={csr_claim(one)},
        admission_holders={key_claim(one): anew()},
        bindings_won=set(),
        binding_holders={BOUND: anew()},
    ) == ["Admit"]


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


def test_ban_of_what_would_wait_is_told_to_its_tenant() -> None:
    """The refusal is the tenant's to see, as the request would have been."""
    one = candidate(waits(b"x"))
    assert decided([one], banned={b"x"}) == ["join:banned"]
    assert refusal_of(one).tenant_id == "acme"


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


# Thefts, and commands


def renewable(*, contested: bool = False) -> Renewable:
    certificate = CertificateRow(
        digest("tbs"), NODE, digest("spki"), NOW, NOW, (), None, is_current=True, revoked=False
    )
    return Renewable(digest("csr"), b"s", certificate, node(), digest("new"), contested)


def theft(*, contested: bool = False) -> Theft:
    why = Refused(AttestorId("renew"), "key-conflict", tenant_id=TenantId("acme"))
    return Theft(renewable(contested=contested), why)


def fetch(*ban_subjects: bytes, stopped: Refused | None = None) -> Fetch:
    return Fetch(renewable(), (), ban_subjects, stopped)


@pytest.mark.parametrize("make", [theft, fetch])
@pytest.mark.parametrize(
    "locked",
    [None, node(generation=2), node(generation=0), node(state="evicted"), node(state="zzz")],
)
def test_node_that_changed_since_it_was_read_is_judged_again(
    make: Callable[[], Theft | Fetch], locked: NodeRow | None
) -> None:
    """What a node may be told, and whether its key is stolen, is said of the node as it is."""
    one = candidate(make())
    effects = decide([one], world([], nodes={} if locked is None else {NODE: locked}))
    assert said(one) == "Rejudge"
    assert not effects.thefts
    assert not effects.fetched
    assert not effects.changed


@pytest.mark.parametrize(("make", "outcome"), [(theft, "renew:key-conflict"), (fetch, "Fetch")])
def test_one_request_of_a_node_at_a_time(make: Callable[[], Theft | Fetch], outcome: str) -> None:
    """The second of a batch sees what the first has done to the node; another node's reader does not care."""
    first, second, other = candidate(make()), candidate(make()), candidate(refused())
    first.reads = {("node", OTHER)}
    second.reads = {("node", NODE), ("grant", GRANT)}
    other.reads = {("node", OTHER)}
    third = candidate(refused())
    third.reads = {("node", anew())}
    batch = [first, second, other, third]
    changes: dict[str, Any] = {"nodes": {NODE: node()}}
    assert decided(batch, **changes) == [outcome, "Rejudge", "acme-asset:no", "Rejudge"]
    # Reads and changes that have nothing to do with each other.
    before, then = candidate(admit()), candidate(make())
    then.reads = {("node", OTHER)}
    assert decided([before, then], **changes) == ["Admit", outcome]


def test_theft_revokes_once_for_each_certificate() -> None:
    """A thief who asks again and again must not write as often."""
    judged = theft()
    one = candidate(judged)
    effects = decide([one], world([], nodes={NODE: node()}))
    assert said(one) == "renew:key-conflict"
    assert effects.thefts == [(one, judged)]
    again = candidate(theft(contested=True))
    effects = decide([again], world([], nodes={NODE: node()}))
    assert said(again) == "renew:key-conflict"
    assert not effects.thefts
    assert not effects.changed


def command() -> LockedCommand:
    return locked(id=UUID(int=3), node_id=NODE, expires_at=NOW + MOMENT)


def test_node_is_told_what_waits_for_it() -> None:
    """And the batch knows of it, so that it is written that it was told."""
    one = candidate(fetch(b"y"))
    changes: dict[str, Any] = {"nodes": {NODE: node()}, "banned": {b"x"}}
    effects = decide([one], world([], commands={NODE: [command()]}, **changes))
    assert isinstance(one.judgement, Fetch)
    assert [sent.id for sent in one.judgement.dispatch.sent] == [UUID(int=3)]
    assert effects.fetched == [(one, one.judgement)]


def test_node_that_may_have_none_any_more_gets_none_and_what_waits_is_refused() -> None:
    """A retired node is not told to wipe its disk, and the operator is told that it was not."""
    stopped = Refused(AttestorId("command"), "node-state", tenant_id=TenantId("acme"))
    asked = fetch(stopped=stopped)
    one = candidate(asked)
    effects = decide([one], world([], nodes={NODE: node()}, commands={NODE: [command()]}))
    assert said(one) == "command:node-state"
    assert [row.reason for row in asked.dispatch.refused] == ["node-state"]
    assert not asked.dispatch.sent
    assert effects.fetched == [(one, asked)]


def test_banned_node_is_told_nothing() -> None:
    """A ban wins over what was enqueued before it, and the tenant is told."""
    asked = fetch(b"y", b"x")
    one = candidate(asked)
    effects = decide(
        [one], world([], nodes={NODE: node()}, commands={NODE: [command()]}, banned={b"x"})
    )
    assert said(one) == "join:banned"
    assert refusal_of(one).tenant_id == "acme"
    assert not asked.dispatch.sent
    assert not effects.fetched
