"""What a settlement writes once it has decided: what is given back, put right, written, and told, in which order."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import orjson
import pytest

from tests.support.deciding import (
    NODE,
    NOW,
    SUBJECT,
    admission,
    admit,
    candidate,
    digest,
    node,
    said,
)
from tests.support.locked_commands import locked
from tests.support.settling import (
    FIRST,
    GRANTS,
    LAST,
    LATER,
    Asked,
    fetch,
    refused,
    renewable,
    settled,
    waits,
)
from watchword.handlers.attestor import Admission, Staged
from watchword.handlers.crypto.profile import IssuedCertificate
from watchword.handlers.crypto.responses import Question
from watchword.handlers.join.approvals import key_of
from watchword.handlers.join.candidate import Again, Candidate, Refusal, Renewal, Theft
from watchword.handlers.join.deciding import csr_claim, key_claim
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.rows import (
    GrantRow,
    InboxClaim,
    LockedCommand,
    RequestRow,
)
from watchword.schemas.canonical import b64
from watchword.schemas.ids import TenantId

ISSUED = IssuedCertificate(b"s" * 16, b"der", digest("tbs"), NOW, LATER)
BINDING = ("acme-asset", SUBJECT)


def ours(*batch: Candidate, **answers: object) -> Asked:
    """Return a session in which this batch is the first with its bytes."""
    return Asked(claim_inbox={one.digest for one in batch}, **answers)


# Step 4: what nobody won


def test_what_a_refused_admission_had_claimed_is_given_back_and_its_outcome_put_right() -> None:
    """A ban came between: the machine's serial is free again, and its bytes are answered with the refusal."""
    binding = ("acme-asset", SUBJECT)
    uses = (("acme-asset", b"a" * 32), ("acme-asset", b"z" * 32))
    one = candidate(
        admit(
            staged=Staged(uses=[(pair[1], None) for pair in reversed(uses)]),
            bindings=(binding, ("acme-asset", b"b" * 32)),
            ban_subjects=(b"b",),
        )
    )
    same = candidate(Refusal(refused()))
    asked = Asked(claim_inbox={one.digest, same.digest}, banned={b"b"})
    settled(asked, one, same)
    assert said(one) == "join:banned"
    claims = sorted((csr_claim(one), key_claim(one)))
    bindings = sorted((binding, ("acme-asset", b"b" * 32)))
    assert asked.given("give_back") == (claims, list(uses), bindings, [])
    corrected = InboxClaim(one.digest, 2, None, None, "join:banned", None)
    assert asked.given("correct") == ({}, {}, {}, [corrected])


def test_request_that_is_judged_again_gives_its_bytes_back() -> None:
    """Its claim would answer it, before anybody has judged it."""
    one, other = candidate(admit()), candidate(Refusal(refused()))
    asked = Asked(claim_inbox={one.digest, other.digest}, claim_admissions=set())
    settled(asked, one, other)
    assert said(one) == "Rejudge"
    assert asked.given("give_back") == ([], [], [], [one.digest])
    assert asked.given("correct")[3] == []


def test_waiting_is_settled_as_it_was_decided() -> None:
    """What was kept stays; what nobody kept goes; what had run out waits anew, in order."""
    batch = [candidate(waits(subject=subject)) for subject in (b"3" * 32, b"2" * 32, b"1" * 32)]
    batch.append(candidate(waits("zebra")))
    old: Sequence[tuple[str, bytes, bytes]] = [
        key_of(one, subject) for one, subject in zip(batch, (b"3" * 32, b"2" * 32), strict=False)
    ]
    new = key_of(batch[2], b"1" * 32)
    full = key_of(batch[3], SUBJECT)
    rows = {key: RequestRow(key, FIRST, "expired", 1, b"", NOW) for key in (*old, new, full)}
    asked = Asked(
        claim_inbox={one.digest for one in batch},
        claim_requests={new, full},
        lock_requests=rows,
        waiting={("zebra", None): 2000},
    )
    settled(asked, *batch)
    given_back, renewed, consumed, now, expires_at = asked.given("settle_requests")
    assert given_back == [full]
    assert [request.key for request in renewed] == sorted(old)
    assert consumed == []
    assert (now, expires_at) == (NOW, NOW + timedelta(hours=2))
    assert said(batch[3]) == "join:too-many-waiting"


# Step 5: refusals


def test_each_refusal_has_its_row_and_as_many_are_published_as_have_slots() -> None:
    """Counted exactly, published up to the bound; the journal is appended to last."""
    batch = [candidate(Refusal(refused())) for _ in range(3)]
    batch.append(candidate(Refusal(refused("why"))))
    bucket = ("acme", "acme-asset", "other")
    asked = Asked(claim_inbox={one.digest for one in batch}, claim_slots={bucket: 2})
    settled(asked, *batch)
    assert asked.given("claim_slots") == ({bucket: 4},)
    rows, worker, now = asked.given("write_refusals")
    assert [row.published for row in rows] == [True, True, False, False]
    assert (worker, now) == ("w0", NOW)
    [entries] = asked.given("append")
    assert len(entries) == 2
    assert asked.names[-3:] == ["claim_slots", "write_refusals", "append"]


# Step 4: owners


@pytest.mark.parametrize(("first", "second"), [(FIRST, LAST), (LAST, FIRST)])
def test_what_the_second_of_two_gets_is_put_right_in_every_table(first: UUID, second: UUID) -> None:
    """The first had claimed it and was banned: a serial, a CSR or a binding under its id would be nobody's for ever."""
    loser = candidate(
        admit(
            node_id=first,
            staged=Staged(uses=[(SUBJECT, LATER)]),
            bindings=(BINDING,),
            ban_subjects=(b"b",),
        ),
        csr="same",
        key="same",
    )
    winner = candidate(
        admit(
            node_id=second,
            staged=Staged(uses=[(SUBJECT, NOW)]),
            bindings=(BINDING,),
            certificate=ISSUED,
        ),
        csr="same",
        key="same",
    )
    asked = ours(loser, winner, banned={b"b"})
    settled(asked, loser, winner)
    assert [said(loser), said(winner)] == ["join:banned", "Admit"]
    assert asked.given("give_back") == ([], [], [], [])
    admissions, uses, bindings, inbox = asked.given("correct")
    assert admissions == {csr_claim(winner): second, key_claim(winner): second}
    assert uses == {BINDING: (second, NOW)}
    assert bindings == {BINDING: second}
    assert [claim.digest for claim in inbox] == [loser.digest]


def test_same_node_by_another_request_is_no_other_owner() -> None:
    """A node that asks twice, and is let in the second time, has what the first had claimed for it."""
    batch = [
        candidate(
            admit(
                node_id=UUID(int=NODE.int),
                rekeys=node(),
                bindings=(BINDING,),
                ban_subjects=bans,
                certificate=ISSUED,
            ),
            csr="same",
            key="same",
        )
        for bans in ((b"b",), ())
    ]
    asked = ours(*batch, banned={b"b"}, lock_nodes={NODE: node()})
    settled(asked, *batch)
    assert [said(one) for one in batch] == ["join:banned", "Admit"]
    assert asked.given("correct")[:3] == ({}, {}, {})


def test_first_owner_that_is_admitted_stays_as_it_is_written() -> None:
    """Mostly the first one wins, and nothing is written twice."""
    one = candidate(
        admit(staged=Staged(uses=[(SUBJECT, LATER)]), bindings=(BINDING,), certificate=ISSUED)
    )
    asked = ours(one)
    settled(asked, one)
    assert said(one) == "Admit"
    assert asked.given("give_back") == ([], [], [], [])
    assert asked.given("correct") == ({}, {}, {}, [])


def test_what_a_node_holds_already_is_not_put_right() -> None:
    """Its key and binding are older rows of its own: they were not claimed, and are nobody's to correct."""
    loser = candidate(
        admit(bindings=(BINDING,), ban_subjects=(b"b",), node_id=FIRST), csr="other", key="same"
    )
    again = candidate(
        admit(node_id=NODE, rekeys=node(), bindings=(BINDING,), certificate=ISSUED), key="same"
    )
    asked = ours(
        loser,
        again,
        banned={b"b"},
        lock_nodes={NODE: node()},
        claim_admissions={csr_claim(loser), csr_claim(again)},
        holders_of_admissions={key_claim(again): NODE},
        claim_bindings=set[object](),
        bindings={BINDING: NODE},
    )
    settled(asked, loser, again)
    # The key and the binding are another node's for the first, and its own for the second.
    assert said(again) == "Admit"
    assert asked.given("correct")[:3] == ({}, {}, {})
    assert asked.given("give_back") == ([csr_claim(loser)], [], [], [])


def test_request_that_turns_out_otherwise_is_recorded_as_it_turned_out() -> None:
    """Whichever is the greater word: an expected refusal that became an admission, or the reverse."""
    kept = admission("again")
    fallen = candidate(Again(kept))
    asked = ours(fallen, admissions={digest("again"): replace(kept, stands=False)})
    settled(asked, fallen)
    assert said(fallen) == "join:csr-reused"
    assert asked.given("correct")[3] == [
        InboxClaim(fallen.digest, 2, None, None, "join:csr-reused", None)
    ]
    for expected, found in ((FIRST, LAST), (LAST, FIRST)):
        lost = candidate(admit(node_id=expected))
        before = admission("x", of=found)
        asked = ours(lost, claim_admissions=set[object](), admissions={csr_claim(lost)[1]: before})
        settled(asked, lost)
        assert said(lost) == "Again"
        assert asked.given("correct")[3] == [InboxClaim(lost.digest, 1, found, None, None, None)]


# Steps 5 and 6


def renewal() -> Renewal:
    admitted = Admission(tenant=TenantId("acme"), role="node", pool="web")
    made = Renewal(
        admitted, Staged(), LAST, node(id=LAST), (), (), certificate=ISSUED, renews=renewable(LAST)
    )
    made.renew_after = NOW
    return made


def command(kind: str = "disk.wipe") -> LockedCommand:
    return locked(id=UUID(int=3), node_id=NODE, kind=kind, expires_at=LATER)


def types(asked: Asked) -> list[str]:
    """Return what the journal is told, in order."""
    [entries] = asked.given("append")
    return [orjson.loads(entry.value)["type"] for entry in entries]


def test_rows_are_written_before_the_journal_and_in_the_order_of_locks() -> None:
    """The journal's number is drawn last: who reads it in order sees nothing whose rows are not there."""
    thief = UUID(int=1 << 90)
    batch = [
        candidate(admit(node_id=FIRST, rekeys=node(id=FIRST), grant=GRANTS[0], certificate=ISSUED)),
        candidate(waits()),
        candidate(renewal()),
        candidate(Theft(renewable(thief), refused())),
        candidate(fetch()),
        candidate(Refusal(refused())),
    ]
    batch[3].question = Question(batch[3].digest, "id", digest("thief's csr"))
    key = key_of(batch[1], SUBJECT)
    asked = ours(
        *batch,
        lock_nodes={each: node(id=each) for each in (FIRST, LAST, thief, NODE)},
        lock_grants={GRANTS[0]: GrantRow(GRANTS[0], FIRST, "acme-asset", SUBJECT, LATER)},
        lock_requests={key: RequestRow(key, FIRST, "pending", 1, b"", LATER)},
        lock_commands={NODE: [command()]},
        supersede={FIRST: [digest("older")]},
        contest={digest("csr")},
        revoke=[],
        claim_slots={("acme", "acme-asset", "other"): 9},
    )
    settled(asked, *batch)
    at = asked.names.index("give_back")
    assert asked.names[at:] == [
        "give_back",
        "settle_requests",
        "correct",
        "supersede",
        "unbind",
        "use_grants",
        "write",
        "renew",
        "contest",
        "evict",
        "revoke",
        "change_commands",
        "claim_slots",
        "write_refusals",
        "append",
    ]
    assert asked.given("supersede") == ([FIRST], NOW, "re-keyed")
    [entries] = asked.given("append")
    assert orjson.loads(entries[0].private)["revoked"] == [b64(digest("older"))]
    assert types(asked) == [
        "node.joined",
        "join.waiting",
        "node.renewed",
        "node.key.conflict",
        "node.evicted",
        "node.command.dispatched",
        "security.join.refused",
        "security.join.refused",
    ]


def test_nodes_that_are_re_keyed_lose_their_certificates_in_one_order() -> None:
    """And no others: a node that joins has none."""
    batch = [
        candidate(admit(node_id=of, rekeys=rekeys, certificate=ISSUED))
        for of, rekeys in (
            (LAST, node(id=LAST)),
            (FIRST, node(id=FIRST)),
            (UUID(int=60), None),
        )
    ]
    asked = ours(*batch, lock_nodes={each: node(id=each) for each in (FIRST, LAST)})
    settled(asked, *batch)
    assert asked.given("supersede") == ([FIRST, LAST], NOW, "re-keyed")
    writes, now = asked.given("write")
    assert [each.id for each in writes.nodes] == [UUID(int=60)]
    assert [each.id for each in writes.rekeyed] == [LAST, FIRST]
    assert now == NOW
    assert types(asked) == ["node.joined"] * 3


def test_nothing_is_written_where_nothing_happened() -> None:
    """The same answer again, ten thousand times in a storm, costs no row."""
    asked = ours(one := candidate(Again(admission("known"))))
    settled(asked, one)
    assert asked.names == ["claim_inbox", "admissions", "give_back", "correct"]
    for judgement, written in (
        (admit(certificate=ISSUED), ["write", "append"]),
        (Refusal(refused()), ["claim_slots", "write_refusals"]),
    ):
        asked = ours(one := candidate(judgement))
        settled(asked, one)
        assert asked.names[asked.names.index("correct") + 1 :] == written


def test_theft_alone_is_written_though_nothing_was_renewed() -> None:
    """The thief's request is refused, and the node is out all the same; a renewal alone needs no theft."""
    asked = ours(
        one := candidate(Theft(renewable(), refused())), lock_nodes={NODE: node()}, revoke=[]
    )
    settled(asked, one)
    assert asked.given("evict")[0] == [NODE]
    asked = ours(one := candidate(renewal()), lock_nodes={LAST: node(id=LAST)})
    settled(asked, one)
    assert said(one) == "Renewal"
    assert len(asked.given("renew")[0]) == 1
    assert "write" not in asked.names


def test_kinds_of_a_deployments_own_are_handed_out() -> None:
    """A kind that is registered is no unknown one because a worker forgot its settings on the way."""
    for kinds, type_ in (
        (BUILT_IN | {"acme.restart"}, "node.command.dispatched"),
        (BUILT_IN, "node.command.refused"),
    ):
        one = candidate(fetch())
        asked = ours(
            one, lock_nodes={NODE: node()}, lock_commands={NODE: [command("acme.restart")]}
        )
        settled(asked, one, kinds=kinds)
        assert types(asked) == [type_]
