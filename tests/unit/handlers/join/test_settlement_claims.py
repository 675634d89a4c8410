"""What a settlement claims before it decides: the bytes of a request, and the places of joins that wait.

The statements themselves are PostgreSQL's to show; here only what they are given is looked at.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.deciding import NODE, NOW, SUBJECT, admission, admit, candidate, digest, said
from tests.support.settling import (
    FIRST,
    LAST,
    LATER,
    RULES,
    Asked,
    fetch,
    locked,
    refused,
    renewable,
    settled,
    waits,
)
from watchword.handlers.attestor import Admission
from watchword.handlers.crypto.responses import Question
from watchword.handlers.join.approvals import key_of, snapshot_of
from watchword.handlers.join.candidate import (
    Again,
    Broken,
    Candidate,
    Judgement,
    NotJudged,
    Refusal,
    Theft,
)
from watchword.handlers.rows import InboxClaim, InboxRow, RequestRow
from watchword.schemas.ids import TenantId

# Step 1: claims of request bytes


@pytest.mark.parametrize(
    ("judgement", "outcome", "of", "reason", "not_after"),
    [
        (admit(node_id=FIRST), 1, FIRST, None, None),
        (admit(node_id=FIRST, objection=refused()), 2, None, "acme-asset:no", None),
        (Again(admission("known", of=LAST)), 1, LAST, None, None),
        (Refusal(refused("why")), 2, None, "acme-asset:why", None),
        (Theft(renewable(), refused("stolen")), 2, None, "acme-asset:stolen", None),
        (fetch(LAST), 6, LAST, None, None),
        (fetch(stopped=refused("evicted")), 2, None, "acme-asset:evicted", None),
        (NotJudged(4, "csr-malformed"), 4, None, "join:csr-malformed", None),
        (NotJudged(5, "unknown-attestor"), 5, None, "join:unknown-attestor", None),
        (waits(), 3, None, None, LATER),
    ],
)
def test_request_is_claimed_with_the_outcome_that_it_will_mostly_have(
    judgement: Judgement,
    outcome: int,
    of: UUID | None,
    reason: str | None,
    not_after: Any,  # noqa: ANN401 - a time, or None
) -> None:
    """What is claimed answers whoever sends the same bytes: a refusal must never read as an admission."""
    one = candidate(judgement)
    one.question = Question(one.digest, "id", digest("its csr"))
    asked = Asked()
    settled(asked, one)
    claim = InboxClaim(one.digest, outcome, of, digest("its csr"), reason, not_after)
    assert asked.given("claim_inbox") == ([claim], NOW)


def test_what_has_no_outcome_yet_is_never_claimed() -> None:
    """A row without an outcome would answer these bytes for ever with nothing."""
    with pytest.raises(RuntimeError, match=r"^Broken is not settled$"):
        settled(Asked(), candidate(Broken("late")))


def test_requests_are_claimed_in_order_and_anothers_are_answered_as_recorded() -> None:
    """Two workers with the same bytes: the second waits, and then says what the first has written; order keeps them from waiting for each other."""
    batch = [candidate(Refusal(refused())) for _ in range(9)]
    theirs, gone, *ours = batch
    row = InboxRow(theirs.digest, 1, NODE, None, None, None)
    asked = Asked(claim_inbox={one.digest for one in ours}, read_inbox={theirs.digest: row})
    settled(asked, *batch)
    claims = [claim.digest for claim in asked.given("claim_inbox")[0]]
    assert claims == sorted(one.digest for one in batch)
    assert asked.given("read_inbox") == ([theirs.digest, gone.digest],)
    assert [said(one) for one in batch] == ["Replay", "Rejudge", *["acme-asset:no"] * 7]
    assert getattr(theirs.judgement, "row", None) is row


def test_inbox_is_not_read_for_what_is_ours() -> None:
    """A query for nothing, in every batch, is what the database has least to give of."""
    one = candidate(Refusal(refused()))
    asked = Asked(claim_inbox={one.digest})
    settled(asked, one)
    assert "read_inbox" not in asked.names


# Joins that wait


def keys(*batch: Candidate) -> list[tuple[str, bytes, bytes]]:
    return sorted(key_of(one, SUBJECT) for one in batch)


def test_joins_that_wait_are_claimed_once_each_and_counted_with_their_tenants() -> None:
    """Bounds hold for a tenant, whichever of two batches comes first; one CSR waits once for one thing."""
    one = candidate(waits("zebra"), csr="same")
    again = candidate(waits("zebra"), csr="same")
    other = candidate(waits("acme", "berlin"))
    asked = Asked(waiting={("acme", None): 5, ("acme", "berlin"): 3, ("zebra", None): 7})
    world, _ = locked(asked, one, again, other)
    assert asked.given("lock_places") == (["acme", "zebra"],)
    assert asked.given("waiting") == (["acme", "zebra"],)
    made, now, expires_at = asked.given("claim_requests")
    assert [request.key for request in made] == [key_of(one, SUBJECT), key_of(other, SUBJECT)]
    assert (now, expires_at) == (NOW, NOW + timedelta(hours=2))
    assert asked.given("lock_requests") == (keys(one, other),)
    waiting = world.waiting
    assert waiting is not None
    assert (waiting.rules, waiting.now) == (RULES, NOW)
    assert waiting.made == set(keys(one, other))
    # What this batch has inserted counts when its turn comes.
    assert waiting.per_tenant == {"acme": 7, "zebra": 6}
    assert waiting.per_site == {("acme", "berlin"): 2}
    assert set(world.wanted_requests) == {one.digest, again.digest, other.digest}


def test_approval_is_locked_for_the_admission_that_consumes_it() -> None:
    """Two admissions of one approval would be two nodes of one word; nobody starts to wait for it."""
    grant = Admission(tenant=TenantId("acme"), role="node", pool="web")
    approved = candidate(admit(approval=(SUBJECT, snapshot_of(grant))))
    row = RequestRow(key_of(approved, SUBJECT), FIRST, "approved", 1, snapshot_of(grant), LATER)
    asked = Asked(lock_requests={row.key: row})
    world, effects = locked(asked, approved, candidate(admit()))
    assert asked.names == ["lock_requests", "claim_admissions"]
    assert asked.given("lock_requests") == ([row.key],)
    assert world.waiting is not None
    assert world.waiting.rows == {row.key: row}
    assert world.waiting.consumed == {row.key}
    assert approved in effects.admitted


def test_request_that_one_waits_on_and_another_consumes_is_locked_once_for_both() -> None:
    """Two requests of one CSR, before and after an operator's word, in one batch: one row, under one lock."""
    batch = (candidate(waits(), csr="same"), candidate(admit(approval=(SUBJECT, b"s")), csr="same"))
    asked = Asked()
    locked(asked, *batch)
    assert asked.given("lock_requests") == (keys(batch[0]),)
