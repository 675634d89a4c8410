"""x509pop without a service: what hostile certificates cost, which way a rule takes them, what a prover says."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.certificates import Held, OperatorCa, name_of, signed, usage
from tests.support.contexts import Desk, run
from tests.support.crypto import TRUST_DOMAIN
from watchword.handlers.attestor import Challenge, Evidence
from watchword.handlers.attestors.x509pop import chain, verifier
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.evidence import PossessionEvidence
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.crypto import chains
from watchword.handlers.errors import BadArgument, Refused, SignatureBroken
from watchword.handlers.prover import NoEvidence
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.ids import TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

MOST_CPU_S = 0.05


@dataclass
class Work:
    """What was done for a verdict."""

    paths: list[int] = field(default_factory=list[int])
    """Lengths of the paths that were given to the verifier."""
    signatures: int = 0
    """Challenge signatures that were looked at."""


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count what costs."""
    done = Work()
    verifier_of, holds = chains.line_verifier, verifier._holds

    def counted(*arguments: object, must_state_usage: bool) -> object:
        done.paths.append(int(str(arguments[2])))
        return verifier_of(*arguments, must_state_usage=must_state_usage)  # type: ignore[arg-type]  # as they came

    def held(*arguments: object) -> bool:
        done.signatures += 1
        return holds(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(chains, "line_verifier", counted)
    monkeypatch.setattr(verifier, "_holds", held)
    return done


def _rule(*authorities: OperatorCa, match: dict[str, str] | None = None) -> Rule:
    certificates = tuple(ca.certificate for ca in authorities)
    return Rule(certificates, match or {"commonName": "*"}, TenantId("acme"), "web")


def _verdict(payload: bytes, *rules: Rule) -> object:
    evidence = Evidence(UnverifiedPayload(payload), Claims())
    try:
        return run(X509PopAttestor(Config(TRUST_DOMAIN, rules)).verify(evidence, _DESK.context()))
    except Refused as refused:
        return refused


_DESK = Desk("x509pop")
_ROOT = OperatorCa()


def _public(bits: int, exponent: int = 65537) -> rsa.RSAPublicKey:
    """Return a public key of any size at once: nobody has its private half."""
    return rsa.RSAPublicNumbers(exponent, (1 << bits) - 1).public_key()


def _certificate_of(key: rsa.RSAPublicKey) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name_of("m1"))
        .issuer_name(name_of(_ROOT.name))
        .public_key(key)
        .serial_number(7)
        .not_valid_before(_ROOT.certificate.not_valid_before_utc)
        .not_valid_after(_ROOT.certificate.not_valid_after_utc)
        .add_extension(usage(digital_signature=True), critical=True)
    )
    assert not isinstance(_ROOT.key, Ed25519PrivateKey)
    return builder.sign(_ROOT.key, SHA256()).public_bytes(Encoding.DER)


def _fifty_intermediates() -> bytes:
    held = OperatorCa("i", issuer=_ROOT).give()
    der = held.intermediates[0].public_bytes(Encoding.DER)
    return PossessionEvidence(held.der, (der,) * 50, b"").encode()


def _loop() -> bytes:
    """Return a leaf under two CAs that have certified each other, and none of them a trusted one."""
    first, second = OperatorCa("first"), OperatorCa("second")
    crossed = (_crossed(first, second), _crossed(second, first))
    held = first.give()
    return PossessionEvidence(held.der, (*crossed, *crossed), b"").encode()


def _crossed(subject: OperatorCa, issuer: OperatorCa) -> bytes:
    extensions = (
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (usage(key_cert_sign=True), True),
    )
    certificate = signed(
        name_of(subject.name), subject.key, name_of(issuer.name), issuer.key, extensions=extensions
    )
    return certificate.public_bytes(Encoding.DER)


def _self_issued() -> bytes:
    """Return intermediates that have all one name, each signed by the next."""
    keys = [OperatorCa("same") for _ in range(5)]
    held = keys[0].give()
    links = tuple(_crossed(a, b) for a, b in pairwise(keys))
    return PossessionEvidence(held.der, links, b"").encode()


@pytest.mark.case("B59")
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (_fifty_intermediates, "malformed"),
        (_loop, "chain"),
        (_self_issued, "chain"),
        (
            lambda: PossessionEvidence(_certificate_of(_public(16_384)), (), b"").encode(),
            "certificate",
        ),
        (
            lambda: PossessionEvidence(
                _certificate_of(_public(4_200, (1 << 4_096) + 1)), (), b""
            ).encode(),
            "certificate",
        ),
        (
            lambda: PossessionEvidence(_certificate_of(_public(2_048, 3)), (), b"").encode(),
            "certificate",
        ),
        (lambda: length_prefixed(b"x509pop/1", b"\x30" * 2_000_000, b"", b""), "malformed"),
        (lambda: b"\x30\x84\xff\xff\xff\xff" * 350_000, "malformed"),
    ],
    ids=[
        "50-intermediates",
        "loop",
        "self-issued",
        "rsa-16384",
        "exponent-of-4096-bits",
        "exponent-3",
        "2-mb-leaf",
        "2-mb",
    ],
)
def test_costly_evidence_is_refused_before_any_signature(
    work: Work, made: Callable[[], bytes], reason: str
) -> None:
    """Whoever makes a chain in a second must not cost us a minute: nothing of it is verified."""
    payload = made()
    _verdict(b"warm", _rule(_ROOT))
    before = time.process_time()
    verdict = _verdict(payload, _rule(_ROOT))
    spent = time.process_time() - before

    assert isinstance(verdict, Refused)
    assert verdict.reason == reason
    assert work == Work()
    assert spent < MOST_CPU_S


@pytest.mark.parametrize("bits", range(1, 8))
def test_signature_of_a_certificate_is_of_whole_bytes(work: Work, bits: int) -> None:
    """A parser takes a count of unused bits for nothing: the same certificate would have eight spellings."""
    held = _ROOT.give()
    der = bytearray(held.der)
    count = len(der) - len(held.certificate.signature) - 1
    assert der[count - 2 : count + 1] == bytes((3, len(der) - count, 0))
    der[count] = bits
    verdict = _verdict(PossessionEvidence(bytes(der), (), b"").encode(), _rule(_ROOT))

    assert isinstance(verdict, Refused)
    assert verdict.reason == "certificate"
    assert work == Work()


def test_rules_with_the_same_authorities_share_one_verification(work: Work) -> None:
    """A hundred rules of one CA must not cost a hundred paths."""
    rules = [_rule(_ROOT, match={"commonName": f"m{number}"}) for number in range(100)]
    payload = PossessionEvidence(_ROOT.give("m99").der, (), b"").encode()

    assert isinstance(_verdict(payload, *rules), Challenge)
    assert work.paths == [0]


def test_intermediates_beyond_a_trusted_ca_are_not_looked_at(work: Work) -> None:
    """A machine may send its chain up to the root, also where the operator trusts a CA in the middle."""
    site = OperatorCa("site", issuer=_ROOT)
    held = OperatorCa("hall", issuer=site).give()
    payload = PossessionEvidence(held.der, _ders(held.intermediates), b"").encode()

    assert isinstance(_verdict(payload, _rule(site)), Challenge)
    assert work.paths == [1]


def _ders(certificates: Sequence[x509.Certificate]) -> tuple[bytes, ...]:
    return tuple(certificate.public_bytes(Encoding.DER) for certificate in certificates)


def test_four_intermediates_are_taken_and_five_are_not() -> None:
    """The bound is the documented one, on both sides."""
    ca = _ROOT
    for number in range(4):
        ca = OperatorCa(f"level {number}", issuer=ca)
    held = ca.give()
    four = PossessionEvidence(held.der, _ders(held.intermediates), b"").encode()
    more = OperatorCa("level 4", issuer=ca).give()
    five = PossessionEvidence(more.der, _ders(more.intermediates), b"").encode()

    assert isinstance(_verdict(four, _rule(_ROOT)), Challenge)
    refused = _verdict(five, _rule(_ROOT))
    assert isinstance(refused, Refused)
    assert refused.reason == "malformed"


def test_authority_of_one_rule_does_not_lead_to_another() -> None:
    """Two operators' CAs in two rules: neither can name the other's machines."""
    theirs = OperatorCa("their CA")
    rules = (
        _rule(_ROOT, match={"commonName": "a-*"}),
        _rule(theirs, match={"commonName": "b-*"}),
    )
    payload = PossessionEvidence(theirs.give("a-1").der, (), b"").encode()
    refused = _verdict(payload, *rules)

    assert isinstance(refused, Refused)
    assert refused.reason == "no-rule"


@pytest.mark.parametrize(
    ("match", "taken"),
    [
        ({"commonName": "m1.*"}, True),
        ({"commonName": "M1.*"}, False),
        ({"dns": "*.web.example"}, True),
        ({"dns": "*.db.example"}, False),
        ({"uri": "spiffe://fleet/*"}, True),
        ({"email": "*"}, False),
        ({"commonName": "*", "dns": "b.web.example"}, True),
        ({"commonName": "*", "organization": "*"}, False),
        ({}, False),
        ({"colour": "*"}, False),
    ],
)
def test_rule_takes_only_what_matches_every_pattern(
    match: dict[str, str],
    taken: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """An absent field, an unknown one or no pattern at all takes nothing: it fails closed."""
    held = _ROOT.give(
        "m1.fleet",
        names=(
            x509.DNSName("a.web.example"),
            x509.DNSName("b.web.example"),
            x509.UniformResourceIdentifier("spiffe://fleet/m1"),
        ),
    )
    rule = Rule((_ROOT.certificate,), match, TenantId("acme"), "web")

    assert rule.takes(held.certificate, "node") is taken
    assert rule.takes(held.certificate, "site") is False


def test_pattern_is_not_stretched_by_hostile_names() -> None:
    """A name that is made to be slow to match, or to end the text early, costs and gains nothing."""
    slow = Rule((_ROOT.certificate,), {"dns": "*a*a*a*a*a*a*a*b"}, TenantId("acme"), "web")
    held = _ROOT.give("m", names=(x509.DNSName("a" * 4_000),))
    before = time.process_time()

    assert not slow.takes(held.certificate, "node")
    assert time.process_time() - before < MOST_CPU_S


def test_names_lead_in_order() -> None:
    """What is verified is one line: an intermediate that is missing, strange or twice there ends it."""
    site = OperatorCa("site", issuer=_ROOT)
    hall = OperatorCa("hall", issuer=site)
    held = hall.give()
    authorities = (_ROOT.certificate,)

    path = chain.named_path(held.certificate, held.intermediates, authorities)
    assert path == [hall.certificate, site.certificate]
    for broken in (
        (),
        (site.certificate, hall.certificate),
        (hall.certificate,),
        (hall.certificate, hall.certificate, site.certificate),
        (hall.certificate, OperatorCa("other").certificate),
    ):
        with pytest.raises(SignatureBroken):
            chain.named_path(held.certificate, broken, authorities)


# The machine's half


def _prover(held: Held) -> X509PopProver:
    return X509PopProver(lambda: held.pem, FileKey(lambda: held.key_pem), TRUST_DOMAIN)


async def test_prover_without_its_files_has_no_evidence() -> None:
    """A file that is not there yet is a local matter: nothing is sent, and it is asked again."""

    def absent() -> bytes:
        message = "no such file"
        raise NoEvidence(message)

    held = _ROOT.give()
    with pytest.raises(NoEvidence):
        await X509PopProver(absent, FileKey(absent), TRUST_DOMAIN).evidence(bytes(32), "node")
    with pytest.raises(NoEvidence):
        await X509PopProver(lambda: held.pem, FileKey(absent), TRUST_DOMAIN).answer(
            bytes(32), bytes(32), "node"
        )


async def test_prover_signs_nothing_but_a_challenge_of_ours() -> None:
    """A signing oracle for texts of other lengths is none; the label keeps the rest apart."""
    for challenge in (b"", bytes(31), bytes(33), b"x" * 4_096):
        with pytest.raises(NoEvidence):
            await _prover(_ROOT.give()).answer(challenge, bytes(32), "node")


async def test_prover_says_what_is_wrong_with_its_files() -> None:
    """And repeats none of their bytes: one of them is a private key."""
    held = _ROOT.give()
    cases = [
        X509PopProver(lambda: b"nothing", FileKey(lambda: held.key_pem), TRUST_DOMAIN),
        X509PopProver(lambda: held.pem * 6, FileKey(lambda: held.key_pem), TRUST_DOMAIN),
        X509PopProver(lambda: held.pem, FileKey(lambda: b"secret"), TRUST_DOMAIN),
        X509PopProver(
            lambda: held.pem,
            FileKey(_unusable_key),
            TRUST_DOMAIN,
        ),
    ]
    for prover in cases:
        with pytest.raises(BadArgument) as caught:
            await prover.answer(bytes(32), bytes(32), "node")
        assert "secret" not in str(caught.value)


def _unusable_key() -> bytes:
    return X25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
