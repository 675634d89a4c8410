"""The verdict on a TPM: each fact about chip, challenge and boot decides, in two rounds and without a server."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.fuzz.targets import run
from tests.support.contexts import Desk
from tests.support.crypto import csr_of, spki_of
from tests.support.tpm import (
    SIGNING,
    Maker,
    SoftProver,
    SoftTpm,
    area,
    name_of,
    new_key,
)
from watchword.handlers.anchors import TpmEndorsement, TpmPolicy
from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    Deferral,
    Evidence,
    Node,
    Subject,
)
from watchword.handlers.attestors.tpm.certificates import read_certificate
from watchword.handlers.attestors.tpm.config import Config, WaitingRoom
from watchword.handlers.attestors.tpm.endorsement import Anchors
from watchword.handlers.attestors.tpm.evidence import Certification, TpmChallenge, TpmEvidence
from watchword.handlers.attestors.tpm.reasons import REASONS
from watchword.handlers.attestors.tpm.statement import KeyProof, qualifying_text
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.handlers.crypto.csr import load_csr
from watchword.handlers.errors import Refused
from watchword.schemas.ids import AttestorId, NodeId, Role, TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

ACME = TenantId("acme")
PCRS = (0, 7)
FIRST_SEEN: dict[str, Any] = {
    "pcrs": list(PCRS),
    "banks": ["sha256"],
    "log": "ignored",
    "unsafe_first_seen": True,
}
LISTED: dict[str, Any] = {
    "pcrs": list(PCRS),
    "banks": ["sha256"],
    "log": "ignored",
    "values": {"sha256": {"0": ["aa" * 32], "7": ["bb" * 32]}},
}
NODE = NodeId(UUID(int=50))
MAKER = Maker()


class Machine:
    """A machine with a TPM, what is known of it, and the desk that it is judged at."""

    def __init__(self, *, is_enrolled: bool = True, role: Role = "node") -> None:
        """Have a chip with the two values that a policy lists."""
        self.chip = SoftTpm()
        self.chip.pcrs[0], self.chip.pcrs[7] = b"\xaa" * 32, b"\xbb" * 32
        self.prover = SoftProver(self.chip)
        self.role = role
        self.desk = Desk("tpm", "".join(role))  # type: ignore[arg-type]
        self.facts = self.desk.facts
        self.room: WaitingRoom | None = None
        self.ek = sha256(self.chip.ek[2:]).digest()
        self.ak = sha256(name_of(self.chip.ak)).digest()
        self.key = sha256(spki_of(self.chip.ek_key)).hexdigest()
        self.policy(LISTED)
        if is_enrolled:
            self.enrol()

    @property
    def grant(self) -> Admission:
        """What the enrolled machine is admitted as."""
        return Admission(
            tenant=ACME,
            role="node",
            pool="web",
            site="berlin",
            bind=self.ek,
            allowed_kinds=("diag.*",),
            hardware_key=f"urn:bc:tpm-ek:{self.key}",
            subjects=(
                Subject("ek", self.ek.hex()),
                Subject("ek-key", self.key),
                Subject("ak", self.ak.hex()),
            ),
        )

    def policy(self, said: dict[str, Any], pool: str = "web") -> None:
        self.facts.tpm_policies[ACME, pool] = TpmPolicy(ACME, pool, said)

    def enrol(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        row = TpmEndorsement(
            ek_sha256=self.ek,
            tenant=ACME,
            pool="web",
            site="berlin",
            role="node",
            allowed_kinds=("diag.*",),
            revoked=False,
        )
        self.facts.endorsements[self.ek] = replace(row, **changes)

    def bind(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        """Have a node that this chip is bound to."""
        self.facts.bound[self.ek] = NODE
        row = Node(
            id=NODE,
            tenant=ACME,
            pool="web",
            site="berlin",
            role="node",
            state="active",
            attestor=AttestorId("tpm"),
            node_key_uri=None,
            hardware_key=None,
        )
        self.facts.nodes_by_id[NODE] = replace(row, **changes)

    def judged(self, payload: bytes, state: bytes | None = None) -> Admission | Deferral:
        attestor = TpmAttestor(Config(Anchors.of([read_certificate(MAKER.root)]), self.room))
        context = self.desk.context(state)
        found = run(attestor.verify(Evidence(UnverifiedPayload(payload), Claims()), context))
        assert (context.staged.uses, context.staged.spends) == ([], [])
        return found

    def asked(self) -> Challenge:
        found = self.judged(self.prover.shown(None))
        assert isinstance(found, Challenge)
        return found

    def answered(self, asked: Challenge) -> bytes:
        return run(self.prover.answer(asked.challenge, self.desk.csr.sha256, self.role))

    def verdict(self) -> Admission | Deferral:
        """Return what comes of both rounds."""
        asked = self.asked()
        return self.judged(self.answered(asked), asked.state)

    def approval(self) -> Approval:
        found = self.verdict()
        assert isinstance(found, Approval)
        return found

    def refusal(self, state: bytes | None = None, payload: bytes | None = None) -> Refused:
        """Return the refusal of a payload, or of the two rounds, whichever it comes in."""
        with pytest.raises(Refused) as caught:
            self.verdict() if payload is None else self.judged(payload, state)
        assert caught.value.attestor == "tpm"
        return caught.value


def test_enrolled_chip_that_answers_its_challenge_is_admitted_where_it_was_enrolled() -> None:
    """Its place and kinds are the row's; by its two keys it is found, bound and banned."""
    one = Machine()
    assert one.verdict() == one.grant


def test_what_is_published_of_the_attestor_is_what_it_was_released_with() -> None:
    """Its id and version stand in tables, states and refusals."""
    attestor = TpmAttestor(Config(Anchors({})))
    assert (attestor.id, attestor.version) == ("tpm", "1")
    assert attestor.roles == {"node", "site", "ramdisk"}
    assert attestor.reasons is REASONS


def test_certification_of_another_key_proves_no_statement_at_renewal() -> None:
    """The core asks here alone: a yes for nothing would let the statement outlive the chip."""
    chip, key = SoftTpm(), ec.generate_private_key(ec.SECP256R1())
    public = area(key, SIGNING)
    attest = chip.certify(qualifying_text(b"text"), name_of(public))
    proof = KeyProof(chip.ak, Certification(public, attest, chip.sign(attest))).encode()
    uri = f"urn:bc:tpm-ak:{sha256(name_of(chip.ak)).hexdigest()}"
    attestor = TpmAttestor(Config(Anchors({})))
    assert attestor.proves_key(uri, proof, b"text", key.public_key()) is True
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    assert attestor.proves_key(uri, proof, b"text", other) is False


# Whose chip


def unfit(machine: Machine, **changes: Any) -> bytes:  # noqa: ANN401 - any field
    shown = TpmEvidence(machine.chip.ek, b"", (), machine.chip.ak)
    return replace(shown, **changes).encode()


def test_keys_that_are_unfit_for_their_parts_get_no_challenge() -> None:
    """A key that signs what it is told would quote any boot; nobody's tenant has been authenticated."""
    one = Machine()
    signing = area(one.chip.ek_key, SIGNING, scheme="ecdsa")
    for payload, reason in (
        (b"junk", "malformed"),
        (unfit(one, ek=b"\0\1x"), "malformed"),
        (unfit(one, ak=b"\0\1x"), "malformed"),
        (unfit(one, ek=signing, ak=signing), "ek-unfit"),
        (unfit(one, ak=area(one.chip.ak_key, SIGNING, scheme="ecdsa")), "ak-unfit"),
    ):
        found = one.refusal(payload=payload)
        assert (found.reason, found.tenant_id) == (reason, None)


def test_chip_that_nobody_enrolled_gets_no_challenge() -> None:
    """Genuine or not: a vendor certifies millions of chips, and who they are says an operator."""
    one = Machine(is_enrolled=False)
    assert one.refusal().reason == "not-enrolled"
    one.prover = SoftProver(one.chip, MAKER)
    assert one.refusal().reason == "not-enrolled"
    one.room = WaitingRoom(ACME, "web")
    one.prover.certificate = MAKER.certify(one.chip.ek_key, self_signed=True)
    assert one.refusal().reason == "ek-certificate"
    one.prover.certificate = b""
    found = one.refusal()
    assert (found.reason, found.tenant_id) == ("not-enrolled", None)


def test_revoked_chip_is_refused_though_it_is_bound_and_genuine() -> None:
    """Whoever takes a stolen machine's row back means it, whatever else speaks for the chip."""
    one = Machine()
    one.prover = SoftProver(one.chip, MAKER)
    one.room = WaitingRoom(ACME, "web")
    one.bind()
    one.enrol(revoked=True, role="site")
    found = one.refusal()
    assert (found.reason, found.tenant_id) == ("revoked", None)


@pytest.mark.parametrize("given", ["node", "site", "ramdisk"])
@pytest.mark.parametrize("asked", ["node", "site", "ramdisk"])
@pytest.mark.parametrize("said_by", ["row", "node"])
def test_chip_is_for_one_role(given: Role, asked: Role, said_by: str) -> None:
    """The node's, where there is one, and else the enrolment's: a ramdisk's chip makes no site."""
    one = Machine(role=asked)
    one.enrol(role=given if said_by == "row" else "site" if given == "node" else "node")
    if said_by == "node":
        one.bind(role=given)
    if given == asked:
        found = one.verdict()
        assert isinstance(found, Admission)
        assert found.role == given
    else:
        refusal = one.refusal()
        assert (refusal.reason, refusal.tenant_id) == ("wrong-role", None)


def test_bound_chip_comes_back_to_its_nodes_own_place() -> None:
    """Where it was admitted once, whatever row it has today; without a row it may be told nothing."""
    one = Machine(is_enrolled=False)
    one.bind(pool="db", site=None)
    one.policy(LISTED, "db")
    place: dict[str, Any] = {"node_id": NODE, "pool": "db", "site": None}
    assert one.verdict() == replace(one.grant, **place, allowed_kinds=())
    one.enrol(approval=True)
    assert one.verdict() == replace(one.grant, **place)
    del one.facts.endorsements[one.ek]
    one.room = WaitingRoom(ACME, "web", allowed_kinds=("logs.collect",))
    assert one.verdict() == replace(one.grant, **place, allowed_kinds=("logs.collect",))


def test_chip_whose_node_is_gone_is_judged_as_a_new_one() -> None:
    """A binding outlives what it names; only an operator's row lets the chip in, and the core sees whom it is bound to."""
    one = Machine()
    one.facts.bound[one.ek] = NODE
    assert one.verdict() == replace(one.grant, node_id=NODE)
    one.enrol(approval=True)
    assert one.approval().grant == replace(one.grant, node_id=NODE)
    one.facts.endorsements.clear()
    assert one.refusal().reason == "not-enrolled"


def waiting(role: Role = "node") -> Machine:
    """Return a genuine chip that nobody has enrolled, where such may ask."""
    one = Machine(is_enrolled=False, role=role)
    one.prover = SoftProver(one.chip, MAKER)
    one.room = WaitingRoom(ACME, "web", "berlin", ("diag.*",))
    return one


@pytest.mark.parametrize("role", ["node", "ramdisk"])
def test_genuine_chip_waits_for_an_operator_who_sees_what_was_proved(role: Role) -> None:
    """Two rounds, then a word: the chip's own, in the waiting room's place, in the role that it asks for."""
    one = waiting(role)
    grant = replace(one.grant, role=role)
    values = sha256(b"\xaa" * 32 + b"\xbb" * 32).hexdigest()
    assert one.verdict() == Approval(
        one.ek,
        grant,
        {
            "ek": one.ek.hex(),
            "ak": one.ak.hex(),
            "pcrs": values,
            "resets": "3",
            "restarts": "0",
            "firmware": "0000000000000007",
        },
    )
    one.facts.agrees = True
    assert one.verdict() == grant


def test_enrolled_chip_waits_where_its_row_says_so() -> None:
    """Until an operator has agreed to its first join, and not again."""
    one = Machine()
    one.enrol(approval=True)
    assert one.approval().grant == one.grant
    one.bind()
    assert one.verdict() == replace(one.grant, node_id=NODE)


# The pool's policy


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


# Challenge and answer


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
