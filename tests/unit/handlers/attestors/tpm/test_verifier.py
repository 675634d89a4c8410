"""The verdict on a TPM: whose chip it is, as what and where it comes in, and who has to agree, without a server."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.tpm import SIGNING, SoftProver, SoftTpm, area, name_of
from tests.support.tpm_machine import ACME, LISTED, MAKER, NODE, Machine
from watchword.handlers.attestor import Admission, Approval
from watchword.handlers.attestors.tpm.config import Config, WaitingRoom
from watchword.handlers.attestors.tpm.endorsement import Anchors
from watchword.handlers.attestors.tpm.evidence import Certification, TpmEvidence
from watchword.handlers.attestors.tpm.reasons import REASONS
from watchword.handlers.attestors.tpm.statement import KeyProof, qualifying_text
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.schemas.ids import Role


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
