"""What a settlement locks and in which order, before it decides: each statement as it is asked for.

The statements themselves are PostgreSQL's to show; here only what they are given is looked at.
"""

from typing import Any
from uuid import UUID

from tests.support.deciding import (
    NODE,
    NOW,
    SUBJECT,
    TOKEN,
    admission,
    admit,
    candidate,
    digest,
    node,
)
from tests.support.settling import (
    FIRST,
    GRANTS,
    LAST,
    LATER,
    Asked,
    fetch,
    locked,
    refused,
    renewable,
    waits,
)
from watchword.handlers.attestor import Staged
from watchword.handlers.join.candidate import Again, Candidate, NotJudged, Refusal, Theft
from watchword.handlers.join.deciding import csr_claim, key_claim
from watchword.handlers.rows import GrantRow
from watchword.schemas.ids import TokenId

# Steps 2 and 3: locks


def everything() -> list[Candidate]:
    """Return a batch that wants something of every table."""
    seen = candidate(admit(rekeys=node(id=LAST), node_id=LAST, grant=GRANTS[0]))
    seen.seen = {("images", "a"): None}
    staged = Staged(spends=[TOKEN], uses=[(SUBJECT, None)])
    return [
        seen,
        candidate(admit(staged=staged, bindings=(("acme-asset", SUBJECT),), ban_subjects=(b"b",))),
        candidate(admit(approval=(b"c" * 32, b"snapshot"))),
        candidate(waits()),
        candidate(fetch(FIRST, UUID(int=8), UUID(int=7))),
        candidate(Theft(renewable(), refused())),
        candidate(Again(admission("again"))),
        candidate(Refusal(refused())),
    ]


def test_tables_are_locked_in_the_one_order_that_binds_every_writer() -> None:
    """A batch and an operator who lock two tables in different orders wait for each other until one is ended."""
    batch = everything()
    lost = {csr_claim(batch[1]), key_claim(batch[1])}
    won = {claim(one) for one in (batch[0], batch[2]) for claim in (csr_claim, key_claim)}
    asked = Asked(claim_admissions=won, claim_uses=set(), claim_bindings=set())
    locked(asked, *batch)
    assert asked.names == [
        "lock_tokens",
        "lock_nodes",
        "lock_places",
        "claim_requests",
        "waiting",
        "lock_requests",
        "lock_grants",
        "claim_admissions",
        "claim_uses",
        "use_holders",
        "claim_bindings",
        "bindings",
        "lock_commands",
        "holders_of_admissions",
        "admissions",
        "banned",
        "images",
    ]
    assert set(asked.given("holders_of_admissions")[0]) == lost
    assert asked.given("use_holders") == ([("acme-asset", SUBJECT)],)
    assert asked.given("bindings") == ([("acme-asset", SUBJECT)],)
    assert asked.given("images") == (["a"],)


def test_nothing_is_asked_for_that_nobody_wants() -> None:
    """Each statement costs every batch a round to the database."""
    locked(asked := Asked())
    assert asked.names == []
    locked(asked := Asked(), candidate(admit()))
    assert asked.names == ["claim_admissions"]
    locked(asked := Asked(), candidate(NotJudged(4, "undecodable")))
    assert asked.names == []
    locked(asked := Asked(), candidate(admit(objection=refused())))
    assert asked.names == ["claim_admissions"]


def test_within_a_table_rows_are_taken_in_the_order_of_their_keys_and_once() -> None:
    """Two batches that take the same rows in two orders wait for each other."""
    tokens = [TokenId("z" * 16), TokenId("a" * 16)]
    batch = [
        candidate(admit(staged=Staged(spends=[tokens[0], tokens[1]]), ban_subjects=(b"z", b"a"))),
        candidate(admit(staged=Staged(spends=[tokens[0]]), ban_subjects=(b"a",))),
        candidate(admit(node_id=LAST, rekeys=node(id=LAST), grant=GRANTS[1])),
        candidate(admit(node_id=LAST, rekeys=node(id=LAST), grant=GRANTS[0])),
        candidate(admit(node_id=LAST, rekeys=node(id=LAST), grant=GRANTS[1])),
        candidate(Theft(renewable(NODE), refused())),
        candidate(fetch(FIRST, UUID(int=9), UUID(int=8))),
        candidate(fetch(FIRST, UUID(int=7))),
    ]
    asked = Asked()
    locked(asked, *batch)
    assert asked.given("lock_tokens") == (sorted(tokens),)
    assert asked.given("lock_nodes") == ([FIRST, NODE, LAST],)
    assert asked.given("lock_grants") == (list(GRANTS),)
    nodes, reported = asked.given("lock_commands")
    assert set(nodes) == {FIRST}
    assert reported == [UUID(int=7), UUID(int=8), UUID(int=9)]
    assert asked.given("banned") == ([b"a", b"ban of who asks", b"z"],)


def test_who_wants_a_thing_first_is_its_owner_until_it_is_decided() -> None:
    """Of two that want one serial the first is admitted; what an objection refuses claims its CSR and key alone."""
    staged = Staged(uses=[(SUBJECT, LATER)])
    binding = ("acme-asset", SUBJECT)
    first = candidate(admit(staged=staged, bindings=(binding,)), csr="one", key="one")
    second = candidate(
        admit(staged=Staged(uses=[(SUBJECT, None)]), bindings=(binding,)), csr="two", key="one"
    )
    objected = candidate(
        admit(
            objection=refused(),
            staged=Staged(uses=[(b"o" * 32, None)], spends=[TOKEN]),
            bindings=(("acme-asset", b"o" * 32),),
            rekeys=node(),
            grant=GRANTS[0],
        )
    )
    last = candidate(admit())
    ids = {
        one.digest: getattr(one.judgement, "node_id", None)
        for one in (first, second, objected, last)
    }
    asked = Asked()
    locked(asked, first, objected, second, last)
    assert asked.given("claim_admissions") == (
        {
            csr_claim(first): ids[first.digest],
            key_claim(first): ids[first.digest],
            csr_claim(second): ids[second.digest],
            **{
                claim(one): ids[one.digest]
                for one in (objected, last)
                for claim in (csr_claim, key_claim)
            },
        },
    )
    assert asked.given("claim_uses") == ({binding: (ids[first.digest], LATER)}, NOW)
    assert asked.given("claim_bindings") == ({binding: ids[first.digest]},)
    # What an objection refuses may still be refused for its token first, and re-keys nobody.
    assert asked.given("lock_tokens") == ([TOKEN],)
    assert "lock_nodes" not in asked.names
    assert "lock_grants" not in asked.names


def test_what_the_locks_showed_is_what_is_decided_on() -> None:
    """An answer that is dropped on its way is a ban, a revoked token or a stolen node that nobody sees."""
    batch = everything()
    taken, free = csr_claim(batch[1]), key_claim(batch[1])
    token, grant = object(), GrantRow(GRANTS[0], LAST, "acme-asset", SUBJECT, LATER)
    admitted = admission("again", stands=False)
    answers: dict[str, Any] = {
        "lock_tokens": {TOKEN: token},
        "lock_nodes": {NODE: node()},
        "lock_grants": {GRANTS[0]: grant},
        "claim_admissions": {free},
        "claim_uses": {("acme-asset", b"x")},
        "use_holders": {("acme-asset", SUBJECT): LAST},
        "claim_bindings": {("acme-asset", b"y")},
        "bindings": {("acme-asset", SUBJECT): FIRST},
        "lock_commands": {FIRST: ()},
        "holders_of_admissions": {taken: LAST},
        "admissions": {digest("again"): admitted},
        "banned": {b"b"},
        "images": {"a": "a row"},
    }
    asked = Asked(**answers)
    world, _ = locked(asked, *batch)
    assert (world.tokens, world.nodes) == (answers["lock_tokens"], answers["lock_nodes"])
    assert (world.grants, world.commands) == (answers["lock_grants"], answers["lock_commands"])
    assert world.admissions_won == {free}
    assert (world.uses_won, world.use_holders) == (answers["claim_uses"], answers["use_holders"])
    assert world.bindings_won == answers["claim_bindings"]
    assert world.binding_holders == answers["bindings"]
    assert world.admission_holders == answers["holders_of_admissions"]
    assert world.admitted_csrs == answers["admissions"]
    assert (world.banned, world.seen) == ({b"b"}, {("images", "a"): "a row"})
    assert world.now == NOW


def test_csr_that_was_admitted_meanwhile_is_looked_for_wherever_it_can_be() -> None:
    """A request that is refused or waits beside its own admission must not be told no."""
    waiting, refusal, lost = (candidate(waits()), candidate(Refusal(refused())), candidate(admit()))
    unread = candidate(NotJudged(4, "undecodable"))
    unread.csr = None
    unheard = candidate(Refusal(refused()))
    unheard.csr = None
    known = candidate(Refusal(refused()))
    known.admitted_before = admission("known")
    batch = (waiting, refusal, lost, unread, unheard, known, candidate(Again(admission("again"))))
    asked = Asked(claim_admissions={key_claim(lost)})
    locked(asked, *batch)
    csrs = [csr_claim(one)[1] for one in (waiting, refusal, lost)]
    assert asked.given("admissions") == (sorted([*csrs, digest("again")]),)
    # A key that was lost is no CSR.
    lost = candidate(admit())
    asked = Asked(claim_admissions={csr_claim(lost)})
    locked(asked, candidate(Again(admission("again"))), lost)
    assert asked.given("admissions") == ([digest("again")],)


def test_bans_are_looked_for_of_all_who_may_come_in_wait_or_ask() -> None:
    """A ban wins over an admission, an operator's word, and a command."""
    batch = [
        candidate(admit(ban_subjects=(b"z",))),
        candidate(admit(ban_subjects=(b"a",), objection=refused())),
        candidate(waits()),
        candidate(fetch()),
    ]
    asked = Asked()
    locked(asked, *batch)
    assert asked.given("banned") == ([b"a", b"ban of who asks", b"ban of who waits", b"z"],)


def test_what_a_verifier_read_is_read_again_for_those_whom_it_may_let_in() -> None:
    """An image that was revoked a moment ago admits nobody; of a refusal nobody asks it again."""
    batch = [
        candidate(admit()),
        candidate(waits()),
        candidate(Refusal(refused())),
        candidate(admit()),
    ]
    for one, name in zip(batch, "abc", strict=False):
        one.seen = {("images", name): None}
    asked = Asked()
    locked(asked, *batch)
    assert asked.given("images") == (["a", "b"],)


def test_holders_of_uses_are_asked_for_where_a_grant_may_give_them_back() -> None:
    """And only of what was lost: mostly nothing is granted."""
    staged = Staged(uses=[(SUBJECT, None), (b"v" * 32, None)])
    for grant, expected in ((None, []), (GRANTS[0], [("acme-asset", SUBJECT)])):
        asked = Asked(claim_uses={("acme-asset", b"v" * 32)})
        locked(asked, candidate(admit(staged=staged, grant=grant)))
        assert [given[0] for name, given in asked.calls if name == "use_holders"] == (
            [expected] if expected else []
        )
    asked = Asked()
    locked(asked, candidate(admit(staged=staged, grant=GRANTS[0])))
    assert "use_holders" not in asked.names
