"""The decision under the locks on nodes: whose key is stolen, and what a node that asks may be told."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.support.deciding import (
    GRANT,
    MOMENT,
    NODE,
    NOW,
    OTHER,
    admit,
    anew,
    candidate,
    decided,
    digest,
    node,
    refusal_of,
    refused,
    said,
    world,
)
from tests.support.locked_commands import locked
from watchword.handlers.errors import Refused
from watchword.handlers.join.candidate import Fetch, Theft
from watchword.handlers.join.deciding import decide
from watchword.handlers.rows import CertificateRow, LockedCommand, NodeRow, Renewable
from watchword.schemas.ids import AttestorId, TenantId


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
