"""The verdict on a certificate: both rounds, by a rule and as our own expired one, without a service."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.certificates import Held, OperatorCa
from tests.support.contexts import Desk, run
from tests.support.crypto import TRUST_DOMAIN, NodeKey, rsa_key, spki_of
from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    Node,
    NodeCertificate,
    Subject,
)
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.evidence import NONCE_BYTES
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.reasons import REASONS
from watchword.handlers.attestors.x509pop.verifier import CHALLENGE_TTL, X509PopAttestor
from watchword.handlers.errors import Refused
from watchword.schemas.ids import AttestorId, NodeId, Role, TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

ROOT = OperatorCa()
RULE = Rule(
    (ROOT.certificate,),
    {"commonName": "*"},
    TenantId("acme"),
    "web",
    site="berlin",
    roles=frozenset(("node", "site")),
    allowed_kinds=("diag.*",),
)
NODE = NodeId(UUID(int=77))
GRACE = timedelta(days=10)
CURVES: dict[str, ec.EllipticCurve] = {
    "p256": ec.SECP256R1(),
    "p384": ec.SECP384R1(),
    "p521": ec.SECP521R1(),
}
KINDS_OF_KEY = (*CURVES, "ed25519", "rsa")


@cache
def keys(kind: str) -> tuple[NodeKey, NodeKey]:
    """Return a machine's key and a thief's."""
    if kind == "rsa":
        return rsa_key(), rsa_key(2056)
    if kind == "ed25519":
        return Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    return ec.generate_private_key(CURVES[kind]), ec.generate_private_key(CURVES[kind])


def tbs_of(held: Held) -> bytes:
    return sha256(held.certificate.tbs_certificate_bytes).digest()


@dataclass
class Rounds:
    """A machine with a certificate, and who judges it; role and trust domain are what it signs for."""

    held: Held
    desk: Desk
    rules: tuple[Rule, ...] = (RULE,)
    role: Role = "node"
    trust_domain: str = TRUST_DOMAIN

    def verdict(self, payload: bytes, state: bytes | None = None) -> Admission | Deferral:
        attestor = X509PopAttestor(Config(TRUST_DOMAIN, self.rules, GRACE))
        evidence = Evidence(UnverifiedPayload(payload), Claims())
        return run(attestor.verify(evidence, self.desk.context(state)))

    def prover(self) -> X509PopProver:
        return X509PopProver(
            lambda: self.held.pem, FileKey(lambda: self.held.key_pem), self.trust_domain
        )

    def challenge(self) -> Challenge:
        payload = run(self.prover().evidence(self.desk.csr.sha256, self.role))
        found = self.verdict(payload)
        assert isinstance(found, Challenge)
        return found

    def answer(self, nonce: bytes) -> bytes:
        return run(self.prover().answer(nonce, self.desk.csr.sha256, self.role))

    def admission(self) -> Admission:
        """Return what both rounds end with."""
        challenge = self.challenge()
        found = self.verdict(self.answer(challenge.challenge), challenge.state)
        assert isinstance(found, Admission)
        return found


def rounds(key: str = "p256") -> Rounds:
    return Rounds(ROOT.give(key=keys(key)[0]), Desk("x509pop"))


def refusal(judge: Callable[[], object]) -> tuple[str, str | None]:
    with pytest.raises(Refused) as caught:
        judge()
    return caught.value.reason, caught.value.tenant_id


@pytest.mark.parametrize("key", KINDS_OF_KEY)
def test_who_signs_with_the_certificates_key_gets_what_the_rule_says(key: str) -> None:
    """Place and kinds are the rule's, the binding and the subjects are the certificate's; none is the machine's to say."""
    one = rounds(key)
    spki = spki_of(one.held.key)
    assert one.admission() == Admission(
        tenant=TenantId("acme"),
        role="node",
        pool="web",
        site="berlin",
        bind=sha256(b"spki\0" + spki).digest(),
        allowed_kinds=("diag.*",),
        subjects=(
            Subject("certificate", tbs_of(one.held).hex()),
            Subject("spki", sha256(spki).hexdigest()),
        ),
    )


def test_bound_certificate_rekeys_its_node_only_where_the_rule_says_so() -> None:
    """Another machine key for the same certificate is a copy of it, unless an operator expects that."""
    one = rounds()
    one.desk.facts.bound[sha256(b"spki\0" + spki_of(one.held.key)).digest()] = NODE
    assert one.admission().node_id is None
    one.rules = (replace(RULE, reattest=True),)
    assert one.admission().node_id == NODE


def test_challenge_is_fresh_and_ends() -> None:
    """A nonce that came twice, or counted for ever, would let a recorded answer count."""
    one = rounds()
    first, second = one.challenge(), one.challenge()
    assert first.challenge != second.challenge
    assert len(first.challenge) == NONCE_BYTES
    assert timedelta(minutes=2) == CHALLENGE_TTL
    assert first.not_after == one.desk.now + CHALLENGE_TTL
    answered = one.answer(first.challenge)
    one.desk.now += CHALLENGE_TTL - timedelta(seconds=1)
    assert isinstance(one.verdict(answered, first.state), Admission)
    one.desk.now += timedelta(seconds=1)
    assert refusal(lambda: one.verdict(answered, first.state)) == ("challenge", None)


def test_answer_counts_for_its_own_challenge_certificate_and_csr_alone() -> None:
    """Round two proves nothing about what round one was not shown."""
    one = rounds()
    challenge = one.challenge()
    answered = one.answer(challenge.challenge)
    assert refusal(lambda: one.verdict(answered, None)) == ("challenge", None)
    assert refusal(lambda: one.verdict(answered, b"junk")) == ("challenge", None)
    assert refusal(lambda: one.verdict(answered, one.challenge().state)) == ("signature", None)
    other = Rounds(ROOT.give(), one.desk)
    assert refusal(lambda: other.verdict(other.answer(challenge.challenge), challenge.state)) == (
        "challenge",
        None,
    )
    # Of every certificate: a comparison that says "not before" instead of "the same" takes half of them.
    for _ in range(16):
        again = Rounds(ROOT.give(), one.desk)
        answers = again.answer(challenge.challenge)
        assert refusal(partial(again.verdict, answers, challenge.state))[0] == "challenge"
    stranger = Rounds(one.held, Desk("x509pop"))
    assert refusal(lambda: stranger.verdict(answered, challenge.state)) == ("challenge", None)


@pytest.mark.parametrize("key", KINDS_OF_KEY)
def test_signature_of_another_key_or_text_is_none(key: str) -> None:
    """Who copied a certificate has no key; who has another deployment's answer has another text."""
    one = rounds(key)
    challenge = one.challenge()
    thief = Rounds(replace(one.held, key=keys(key)[1]), one.desk)
    for answered in (
        thief.answer(challenge.challenge),
        replace(one, trust_domain="other.example").answer(challenge.challenge),
        Rounds(one.held, one.desk, role="site").answer(challenge.challenge),
        one.answer(bytes(NONCE_BYTES)),
    ):
        assert refusal(partial(one.verdict, answered, challenge.state)) == ("signature", None)


def test_first_rule_that_takes_the_certificate_counts_and_the_reason_says_how_far_it_came() -> None:
    """Operators order their rules; whether none took it or no CA vouches for it, is told inside."""
    one = rounds()
    stranger = replace(RULE, authorities=(OperatorCa("other").certificate,), pool="theirs")
    nobody = replace(RULE, match={"commonName": "nobody"}, pool="nobody")
    one.rules = (stranger, nobody, RULE, replace(RULE, pool="last"))
    assert one.admission().pool == "web"
    one.rules = (nobody, stranger)
    assert refusal(one.challenge) == ("no-rule", None)
    one.rules = (stranger,)
    assert refusal(one.challenge) == ("chain", None)


def test_junk_and_what_is_no_certificate_have_reasons_of_their_own() -> None:
    """Before anything costs; and nobody is authenticated by either."""
    one = rounds()
    assert refusal(lambda: one.verdict(b"junk")) == ("malformed", None)
    broken = replace(one, held=replace(one.held, intermediates=()))
    payload = bytearray(run(broken.prover().evidence(bytes(32), "node")))
    payload[payload.index(one.held.der)] ^= 0xFF
    assert refusal(lambda: one.verdict(bytes(payload))) == ("certificate", None)


def test_what_is_published_of_the_attestor_is_what_it_was_released_with() -> None:
    """Its id and version stand in tables, states and refusals; a ramdisk never comes by it."""
    attestor = X509PopAttestor(Config(TRUST_DOMAIN))
    assert (attestor.id, attestor.version, attestor.roles) == (
        "x509pop",
        "1",
        frozenset(("node", "site")),
    )
    assert attestor.reasons is REASONS


# Certificates of our own


def own(key: str = "p256", **changes: Any) -> Rounds:  # noqa: ANN401 - any field
    """Return a node whose certificate of ours expired an hour ago; no rule takes it."""
    one = Rounds(OperatorCa("Watchword").give(key=keys(key)[0]), Desk("x509pop"), rules=())
    certificate = NodeCertificate(
        node_id=NODE,
        spki_sha256=sha256(spki_of(one.held.key)).digest(),
        not_before=one.desk.now - timedelta(days=7),
        not_after=one.desk.now - timedelta(hours=1),
        allowed_kinds=("logs.collect",),
        node_key_uri=None,
        is_current=True,
        revoked=False,
    )
    node = Node(
        NODE, TenantId("acme"), "db", "berlin", "node", "active", AttestorId("tpm"), None, "ek:1"
    )
    of_certificate = {n: v for n, v in changes.items() if n in NodeCertificate.__slots__}
    of_node = {n: v for n, v in changes.items() if n not in of_certificate}
    one.desk.facts.certificates[tbs_of(one.held)] = replace(certificate, **of_certificate)
    one.desk.facts.nodes_by_id[NODE] = replace(node, **of_node)
    return one


@pytest.mark.parametrize("state", ["adopting", "active"])
def test_own_expired_certificate_rekeys_its_node_as_the_node_is(state: str) -> None:
    """Coming back widens nothing: place and proven key are the node's, kinds the certificate's."""
    one = own(state=state)
    assert one.admission() == Admission(
        tenant=TenantId("acme"),
        role="node",
        pool="db",
        site="berlin",
        node_id=NODE,
        allowed_kinds=("logs.collect",),
        hardware_key="ek:1",
        subjects=(Subject("spki", sha256(spki_of(one.held.key)).hexdigest()),),
        certificate=tbs_of(one.held),
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_current": False, "state": "banned"}, "superseded"),
        ({"revoked": True, "state": "banned"}, "superseded"),
        ({"state": "evicted", "not_after": timedelta(days=1)}, "node-state"),
        ({"state": "banned"}, "node-state"),
        ({"state": "retired"}, "node-state"),
        ({"state": "deleted"}, "node-state"),
        ({"not_after": timedelta(microseconds=1), "role": "site"}, "use-renewal"),
        ({"not_after": -GRACE, "role": "site"}, "expired"),
        ({"not_after": -GRACE - timedelta(days=1)}, "expired"),
    ],
)
def test_own_certificate_counts_only_while_its_node_does(
    changes: dict[str, Any], reason: str
) -> None:
    """The first fact that fails is the reason, and it is told before any challenge."""
    if "not_after" in changes:
        one = own()
        changes = {**changes, "not_after": one.desk.now + changes["not_after"]}
        now, one = one.desk.now, own(**changes)
        one.desk.now = now
    else:
        one = own(**changes)
    assert refusal(one.challenge) == (reason, None)


def test_own_certificate_counts_from_its_end_to_the_last_moment_of_the_grace() -> None:
    """Before it there is renewal, which finds thieves; afterwards there is nothing."""
    one = own()
    ended = one.desk.facts.certificates[tbs_of(one.held)].not_after
    for now in (ended, ended + GRACE - timedelta(microseconds=1)):
        one.desk.now = now
        assert one.challenge().challenge


@pytest.mark.parametrize("asked", ["node", "site", "ramdisk"])
@pytest.mark.parametrize("given", ["node", "site", "ramdisk"])
def test_own_certificate_brings_a_node_back_in_its_role_and_a_ramdisk_never(
    given: Role, asked: Role
) -> None:
    """A ramdisk is let in by its site each time; and the words may have been read from anywhere."""
    one = own(role=given)
    read_anew: Any = "".join(asked)
    one.desk = Desk("x509pop", role=read_anew, facts=one.desk.facts)
    if given == asked != "ramdisk":
        assert one.challenge().challenge
    else:
        assert refusal(one.challenge) == ("wrong-role", None)


def test_certificate_row_without_its_node_brings_nobody_back() -> None:
    """What was issued to a node that is gone, is nobody's."""
    one = own()
    del one.desk.facts.nodes_by_id[NODE]
    assert refusal(one.challenge) == ("superseded", None)


def test_statement_is_carried_on_only_for_the_key_that_it_is_about() -> None:
    """`urn:bc:tpm-ak:` says where the certificate's key lives; a new key has to show that anew."""
    for other in (bytes(32), b"\xff" * 32):
        stated = own(node_key_uri="urn:bc:tpm-ak:1", spki_sha256=other)
        assert refusal(stated.challenge) == ("statement", None)
    one = own(node_key_uri="urn:bc:tpm-ak:1")
    certificate = one.desk.facts.certificates[tbs_of(one.held)]
    asked = sha256(
        one.desk.csr.public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).digest()
    one.desk.facts.certificates[tbs_of(one.held)] = replace(certificate, spki_sha256=asked)
    assert one.admission().node_key_uri == "urn:bc:tpm-ak:1"
