"""The decision under the locks: what is used up, bound or banned refuses, for a reason that its tenant is told."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.deciding import (
    BOUND,
    LAST,
    NODE,
    NOW,
    OTHER,
    SUBJECT,
    TOKEN,
    admit,
    anew,
    candidate,
    decided,
    node,
    refusal_of,
    rekey,
    spends,
    state,
    uses,
    waits,
    world,
)
from watchword.handlers.attestor import Staged
from watchword.handlers.errors import tried_digest
from watchword.handlers.join.candidate import Proof
from watchword.handlers.join.deciding import csr_claim, decide, key_claim, use_claims
from watchword.schemas.ids import AttestorId


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


def test_ban_of_what_would_wait_is_told_to_its_tenant() -> None:
    """The refusal is the tenant's to see, as the request would have been."""
    one = candidate(waits(b"x"))
    assert decided([one], banned={b"x"}) == ["join:banned"]
    assert refusal_of(one).tenant_id == "acme"
