"""Certificates that a machine must not install."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.crypto import NODE_ID, NOW, TRUST_DOMAIN, order, spki_of
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.schemas.canonical import b64, unb64
from watchword.schemas.responses import Joined
from watchword.streams.agent.certificates import check_joined, load_authorities
from watchword.streams.agent.errors import AnswerNotUsable

KEY = ec.generate_private_key(ec.SECP256R1())
CA_KEY, CA = create_ca(TRUST_DOMAIN, now=NOW)
OTHER_KEY, OTHER_CA = create_ca(TRUST_DOMAIN, now=NOW)
NAME = f"spiffe://{TRUST_DOMAIN}/tenant/acme/node/{NODE_ID}"


@dataclass(frozen=True)
class Recipe:
    """A certificate, by its parts."""

    key: ec.EllipticCurvePrivateKey = KEY
    names: tuple[str, ...] | None = (NAME,)
    is_critical: bool = True
    is_ca: bool = False
    has_use: bool = True
    use: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH
    issuer: x509.Certificate = CA
    issuer_key: ec.EllipticCurvePrivateKey = CA_KEY

    def make(self) -> x509.Certificate:
        """Return the certificate."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.issuer.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW)
            .not_valid_after(NOW + timedelta(days=1))
        )
        if self.names is not None:
            uris = [x509.UniformResourceIdentifier(name) for name in self.names]
            builder = builder.add_extension(
                x509.SubjectAlternativeName(uris), critical=self.is_critical
            )
        if self.has_use:
            builder = builder.add_extension(
                x509.BasicConstraints(ca=self.is_ca, path_length=None), critical=True
            ).add_extension(x509.ExtendedKeyUsage([self.use]), critical=False)
        return builder.sign(self.issuer_key, SHA256())


def answer(*chain: x509.Certificate) -> Joined:
    return Joined(
        node_id=NODE_ID,
        tenant="acme",
        pool="default",
        site=None,
        role="node",
        chain=tuple(b64(certificate.public_bytes(Encoding.DER)) for certificate in chain),
        allowed_kinds=None,
        renew_after="2026-01-02T04:00:00.000Z",
    )


def check(joined: Joined, *authorities: x509.Certificate) -> list[x509.Certificate]:
    return check_joined(
        joined,
        spki_der=spki_of(KEY),
        trust_domain=TRUST_DOMAIN,
        authorities=authorities or (CA,),
    )


def test_certificates_of_our_own_authority_are_good() -> None:
    """The check must fit what the authority really issues, with a key statement too."""
    statement = "urn:bc:tpm-ak:" + "ab" * 32
    issued = Authority(CA_KEY, [CA], trust_domain=TRUST_DOMAIN).issue(
        [order(KEY), order(KEY, node_key_uri=statement)]
    )
    for certificate in issued:
        leaf = x509.load_der_x509_certificate(certificate.der)
        assert check(answer(leaf)) == [leaf]
        assert check(answer(leaf, CA)) == [leaf, CA]


BAD: dict[str, Recipe] = {
    "another key": Recipe(key=OTHER_KEY),
    "no names": Recipe(names=None),
    "names not critical": Recipe(is_critical=False),
    "another node": Recipe(names=(NAME[:-1] + "0",)),
    "another trust domain": Recipe(names=(NAME.replace(TRUST_DOMAIN, "evil.example"),)),
    "two SPIFFE IDs": Recipe(names=(NAME, NAME.replace("acme", "other"))),
    "a CA": Recipe(is_ca=True),
    "not for clients": Recipe(use=ExtendedKeyUsageOID.SERVER_AUTH),
    "no use": Recipe(has_use=False),
    "another authority": Recipe(issuer=OTHER_CA, issuer_key=OTHER_KEY),
    "our authority's name, another's signature": Recipe(issuer_key=OTHER_KEY),
}


@pytest.mark.parametrize("recipe", BAD.values(), ids=BAD.keys())
def test_certificate_that_cannot_work_is_not_taken(recipe: Recipe) -> None:
    """Better no files than files that fail at the first peer, or that name another machine."""
    with pytest.raises(AnswerNotUsable):
        check(answer(recipe.make()))


CHANGED: dict[str, Callable[[Joined], Joined]] = {
    "empty chain": lambda joined: replace_fields(joined, chain=()),
    "endless chain": lambda joined: replace_fields(joined, chain=joined.chain * 9),
    "junk in the chain": lambda joined: replace_fields(joined, chain=(*joined.chain, "AAAA")),
    "no base64": lambda joined: replace_fields(joined, chain=("?",)),
    "another node in the answer": lambda joined: replace_fields(joined, node_id=NODE_ID[:-1] + "0"),
    "a tenant that is a path": lambda joined: replace_fields(joined, tenant="acme/../root"),
}


def replace_fields(joined: Joined, **fields: object) -> Joined:
    return joined.model_copy(update=fields)


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_answer_that_does_not_fit_its_certificate_is_not_taken(
    change: Callable[[Joined], Joined],
) -> None:
    """What the machine believes to be must be what its certificate says."""
    with pytest.raises(AnswerNotUsable):
        check(change(answer(Recipe().make())))


@pytest.mark.filterwarnings(
    "ignore:Parsed a serial number:cryptography.utils.CryptographyDeprecationWarning"
)
@pytest.mark.parametrize("changed_by", [0x01, 0x03, 0x80, 0xFF])
def test_certificate_with_a_signed_byte_changed_is_not_taken(changed_by: int) -> None:
    """Whatever `cryptography` makes of it (a version 4, for one) must not end an agent."""
    good = answer(Recipe().make())
    der = unb64(good.chain[0])
    for at in range(len(der)):
        changed = der[:at] + bytes((der[at] ^ changed_by,)) + der[at + 1 :]
        with contextlib.suppress(AnswerNotUsable):
            [found] = check(replace_fields(good, chain=(b64(changed),)))
            # What is beside the signed part, such as the algorithm's second mention, is nobody's.
            assert found.tbs_certificate_bytes in der


def test_bundle_with_a_byte_changed_spoils_nothing() -> None:
    """An authority of an unknown version is one that nobody leads to."""
    der = CA.public_bytes(Encoding.DER)
    for at in range(len(der)):
        load_authorities([b64(der[:at] + bytes((der[at] ^ 0x01,)) + der[at + 1 :])])


def test_chain_over_an_intermediate_leads_to_its_root() -> None:
    """A CA below a root that the bundle names is as good as one that is named itself."""
    middle_key = ec.generate_private_key(ec.SECP256R1())
    middle = (
        x509.CertificateBuilder()
        .subject_name(x509.Name.from_rfc4514_string("CN=middle"))
        .issuer_name(CA.subject)
        .public_key(middle_key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(CA_KEY, SHA256())
    )
    leaf = replace(Recipe(), issuer=middle, issuer_key=middle_key).make()

    assert check(answer(leaf, middle)) == [leaf, middle]
    with pytest.raises(AnswerNotUsable):
        check(answer(leaf))
    with pytest.raises(AnswerNotUsable):
        check(answer(leaf, OTHER_CA))


def test_one_bad_authority_spoils_no_other() -> None:
    """A bundle may hold a certificate that this release cannot read."""
    good = b64(CA.public_bytes(Encoding.DER))

    assert load_authorities(("AAAA", "?", good)) == [CA]


def test_without_authorities_nothing_is_taken() -> None:
    """No rule means no."""
    with pytest.raises(AnswerNotUsable):
        check_joined(
            answer(Recipe().make()),
            spki_der=spki_of(KEY),
            trust_domain=TRUST_DOMAIN,
            authorities=(),
        )
