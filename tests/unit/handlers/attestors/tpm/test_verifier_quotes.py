"""The verdict on a boot: what a chip quotes counts for the challenge that it answers, under the pool's policy."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.crypto import csr_of
from tests.support.tpm import SoftTpm, new_key
from tests.support.tpm_machine import LISTED, NODE, PCRS, Machine
from watchword.handlers.attestor import Subject
from watchword.handlers.attestors.tpm.evidence import TpmChallenge
from watchword.handlers.crypto.csr import load_csr
from watchword.schemas.ids import NodeId

FIRST_SEEN: dict[str, Any] = {
    "pcrs": list(PCRS),
    "banks": ["sha256"],
    "log": "ignored",
    "unsafe_first_seen": True,
}


@pytest.mark.parametrize("said", [None, {}, {**LISTED, "surprise": 1}, {**LISTED, "pcrs": [2**60]}])
def test_pool_without_a_policy_that_can_be_read_challenges_nobody(
    said: dict[str, Any] | None,
) -> None:
    """Closed until somebody has said what a boot has to look like."""
    one = Machine()
    one.facts.tpm_policies.clear()
    if said is not None:
        one.policy(said)
    found = one.refusal()
    assert (found.reason, found.tenant_id) == ("policy", None)


def test_boot_that_does_not_meet_the_policy_is_told_to_its_tenant() -> None:
    """By now the chip has proved whose it is; which value was wrong is the security team's first question."""
    one = Machine()
    one.chip.pcrs[7] = b"\xcc" * 32
    found = one.refusal()
    assert (found.reason, found.tenant_id) == ("pcr-mismatch", "acme")
    one.policy({**LISTED, "log": "required"})
    one.chip.pcrs[7] = b"\xbb" * 32
    assert one.refusal().reason == "log-absent"


def test_challenge_is_fresh_names_what_to_quote_and_ends_after_five_minutes() -> None:
    """A discrete TPM takes seconds, and an agent waits its turn for it; a quarter of an hour would be an attacker's."""
    one = Machine()
    asked, again = one.asked(), one.asked()
    assert asked.challenge != again.challenge
    said = TpmChallenge.decode(asked.challenge)
    assert (said.banks, said.pcrs) == (("sha256",), PCRS)
    assert asked.not_after == one.desk.now + timedelta(minutes=5)
    payload = one.answered(asked)
    one.desk.now += timedelta(minutes=4, seconds=59)
    assert one.judged(payload, asked.state) == one.grant
    one.desk.now += timedelta(seconds=2)
    found = one.refusal(asked.state, payload)
    assert (found.reason, found.tenant_id) == ("challenge", None)


def test_answer_counts_with_the_state_that_was_made_for_these_keys_alone() -> None:
    """Else one chip activates a credential, and another one quotes."""
    one = Machine()
    asked = one.asked()
    payload = one.answered(asked)
    context = one.desk.context(asked.state)
    state = context.open_state()
    assert state is not None
    assert len(state) == 128
    low, high = bytes(32), b"\xff" * 32
    others = [state[:64] + ek + ak for ek in (low, high, one.ek) for ak in (low, high)]
    others += [state[:64] + other + one.ak for other in (low, high)]
    others += [state[:-1], state + b"x", state[32:], b""]
    sealed = [context.seal_state(other, timedelta(minutes=1)) for other in others]
    for shown in (
        None,
        b"junk",
        one.desk.context().seal_state(b"x", timedelta(minutes=1)),
        *sealed,
    ):
        found = one.refusal(shown, payload)
        assert (found.reason, found.tenant_id) == ("challenge", None)
    good = context.seal_state(state, timedelta(minutes=1))
    assert one.judged(payload, good) == one.grant


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_chip_that_cannot_activate_the_credential_is_refused(secret: bytes) -> None:
    """The secret comes out only in the chip that holds both keys."""
    one = Machine()
    one.prover.changes = {"secret": secret}
    found = one.refusal()
    assert (found.reason, found.tenant_id) == ("activation", None)


def test_quote_is_of_this_challenge_by_this_key_over_these_values() -> None:
    """Yesterday's quote says how the machine was yesterday."""
    one = Machine()
    stale = one.chip.quote(bytes(32), PCRS)
    for bend, reason in (
        ({"quote": stale, "signature": one.chip.sign(stale)}, "stale"),
        ({"signature": SoftTpm().sign(b"text")}, "quote"),
        ({"values": b"\xaa" * 64}, "quote"),
        ({"quote": b"\xff\x54\x43\x47"}, "malformed"),
    ):
        one.prover.changes = bend
        found = one.refusal()
        assert (found.reason, found.tenant_id) == (reason, None)


def test_key_of_the_csr_is_stated_only_if_the_chip_has_certified_it() -> None:
    """The certificate would say that a key cannot leave its machine."""
    one = Machine()
    one.prover.node_key = key = new_key("p256")
    assert one.refusal().reason == "certify"
    one.desk.csr = load_csr(csr_of(key))
    assert one.verdict() == replace(one.grant, node_key_uri=f"urn:bc:tpm-ak:{one.ak.hex()}")


# Values first seen


def notes(machine: Machine, pcr: int) -> list[Subject]:
    """Return what is noted of a PCR: that it was seen, and its value."""
    where = f"{machine.key}/sha256/{pcr}"
    value = f"{where}/{machine.chip.pcrs[pcr].hex()}"
    return [Subject("tpm-pcr", where), Subject("tpm-pcr", value)]


def test_values_of_a_first_boot_are_noted_with_the_node() -> None:
    """They go with its admission, in one transaction; which chip, which bank and which PCR stands in them."""
    one = Machine()
    one.policy(FIRST_SEEN)
    noted = (*notes(one, 0), *notes(one, 7))
    assert one.verdict() == replace(one.grant, subjects=(*one.grant.subjects, *noted))


def test_another_boot_than_the_first_is_refused_and_the_same_is_not_noted_twice() -> None:
    """What has changed since the machine came in is what nobody has agreed to; another node's notes are its own."""
    one = Machine()
    one.policy(FIRST_SEEN)
    one.bind()
    grant = replace(one.grant, node_id=NODE)
    for note in (*notes(one, 0), *notes(one, 7)):
        one.facts.subjects[note] = [NodeId(UUID(int=7))]
    everything = (*notes(one, 0), *notes(one, 7))
    assert one.verdict() == replace(grant, subjects=(*grant.subjects, *everything))
    for note in notes(one, 0):
        one.facts.subjects[note].append(NodeId(UUID(int=50)))
    assert one.verdict() == replace(grant, subjects=(*grant.subjects, *notes(one, 7)))
    one.facts.subjects[notes(one, 7)[0]].append(NodeId(UUID(int=50)))
    found = one.refusal()
    assert (found.reason, found.tenant_id) == ("pcr-changed", "acme")
    one.facts.subjects[notes(one, 7)[1]].append(NodeId(UUID(int=50)))
    assert one.verdict() == grant
