"""The node CA and its one profile."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import load_der_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given
from hypothesis import strategies as st

from tests.support.crypto import (
    DAY,
    NODE_ID,
    NOW,
    STATEMENT,
    TRUST_DOMAIN,
    NodeKey,
    authority,
    order,
    rsa_key,
    spki_of,
)
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import CA_LIFETIME, create_ca
from watchword.handlers.crypto.keypolicy import public_key_bits
from watchword.handlers.crypto.profile import BACKDATE, CertificateOrder, OrderRefused
from watchword.handlers.crypto.tbs import TbsTemplate, key_identifier
from watchword.handlers.errors import BadArgument, ConfigRefused, SignerUnavailable

CA_KEY, CA = create_ca(TRUST_DOMAIN, now=NOW)
AUTHORITY = Authority(CA_KEY, [CA], trust_domain=TRUST_DOMAIN)
NODE_URI = f"spiffe://{TRUST_DOMAIN}/tenant/acme/node/{NODE_ID}"
KEYS: list[NodeKey] = [
    ec.generate_private_key(ec.SECP256R1()),
    ec.generate_private_key(ec.SECP384R1()),
    Ed25519PrivateKey.generate(),
    rsa_key(),
]


def issued(wanted: CertificateOrder, by: Authority = AUTHORITY) -> x509.Certificate:
    """Return the one certificate of an order."""
    (made,) = by.issue([wanted])
    return x509.load_der_x509_certificate(made.der)


def built(
    *,
    serial: int,
    spki: bytes,
    uris: list[str],
    not_before: datetime,
    not_after: datetime,
    key: ec.EllipticCurvePrivateKey = CA_KEY,
    issuer: x509.Certificate = CA,
) -> x509.Certificate:
    """Return what the library's builder makes of the profile."""
    public: Any = load_der_public_key(spki)
    off = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
    ca_key_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(names, critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **off), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_key_id),
            critical=False,
        )
        .add_extension(
            x509.SubjectKeyIdentifier(sha256(public_key_bits(spki)).digest()[:20]), critical=False
        )
        .sign(key, SHA384() if key.curve.name == "secp384r1" else SHA256())
    )


_times = st.datetimes(datetime(1990, 1, 1), datetime(2120, 1, 1)).map(  # noqa: DTZ001
    lambda at: at.replace(microsecond=0, tzinfo=UTC)
)


@given(
    serial=st.binary(min_size=16, max_size=16).filter(any),
    spki=st.sampled_from([spki_of(key) for key in KEYS]),
    uris=st.lists(
        st.from_regex(r"[a-z]{1,9}:[a-z0-9/.-]{1,200}", fullmatch=True), min_size=1, max_size=2
    ),
    times=st.tuples(_times, _times).filter(lambda pair: pair[0] < pair[1]),
)
def test_every_byte_is_the_one_that_the_librarys_builder_writes(
    serial: bytes, spki: bytes, uris: list[str], times: tuple[datetime, datetime]
) -> None:
    """The template is ours for speed; what DER of X.509 is, is not ours to say."""
    oracle = built(
        serial=int.from_bytes(serial, "big"),
        spki=spki,
        uris=uris,
        not_before=times[0],
        not_after=times[1],
    )
    template = TbsTemplate(
        issuer_name=CA.subject.public_bytes(),
        issuer_key_identifier=CA.extensions.get_extension_for_class(
            x509.SubjectKeyIdentifier
        ).value.digest,
        signature_algorithm=bytes.fromhex("300a06082a8648ce3d040302"),
    )

    tbs = template.fill(
        serial=serial,
        not_before=times[0],
        not_after=times[1],
        spki_der=spki,
        key_identifier=key_identifier(public_key_bits(spki)),
        uris=[uri.encode() for uri in uris],
    )

    assert tbs == oracle.tbs_certificate_bytes


@pytest.mark.parametrize("key", KEYS, ids=["P-256", "P-384", "Ed25519", "RSA"])
@pytest.mark.parametrize("statement", [None, STATEMENT], ids=["plain", "statement"])
def test_a_certificate_is_what_its_order_and_the_profile_say(
    key: NodeKey, statement: str | None
) -> None:
    wanted = order(key, node_key_uri=statement)

    (made,) = AUTHORITY.issue([wanted])

    certificate = x509.load_der_x509_certificate(made.der)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.critical
    assert names.value.get_values_for_type(x509.UniformResourceIdentifier) == [
        NODE_URI,
        *([statement] if statement else []),
    ]
    assert len(names.value) == (2 if statement else 1)
    assert certificate.subject == x509.Name([])
    assert certificate.not_valid_before_utc == NOW - BACKDATE == made.not_before
    assert certificate.not_valid_after_utc == NOW + DAY == made.not_after
    assert certificate.serial_number == int.from_bytes(made.serial, "big")
    assert len(made.serial) == 16
    assert made.tbs_sha256 == sha256(certificate.tbs_certificate_bytes).digest()
    certificate.verify_directly_issued_by(CA)
    oracle = built(
        serial=certificate.serial_number,
        spki=wanted.spki_der,
        uris=[NODE_URI, *([statement] if statement else [])],
        not_before=NOW - BACKDATE,
        not_after=NOW + DAY,
    )
    assert certificate.tbs_certificate_bytes == oracle.tbs_certificate_bytes


def test_a_path_validator_takes_the_certificate_as_a_client() -> None:
    """Servers check it with such a validator (RFC 5280, 6); a profile of our own helps nobody."""
    verifier = PolicyBuilder().store(Store([CA])).time(NOW).build_client_verifier()

    verified = verifier.verify(issued(order(node_key_uri=STATEMENT)), [])

    assert verified.subjects is not None
    assert [name.value for name in verified.subjects] == [NODE_URI, STATEMENT]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"tenant": ""}, id="no tenant"),
        pytest.param({"tenant": "Acme"}, id="capitals"),
        pytest.param({"tenant": "a/node/b"}, id="a path in the tenant"),
        pytest.param({"tenant": "acme\n"}, id="a line end"),
        pytest.param({"tenant": "-acme"}, id="no DNS label"),
        pytest.param({"tenant": "a" * 64}, id="a long tenant"),
        pytest.param({"tenant": "acmé"}, id="no ASCII"),
        pytest.param({"node_id": NODE_ID.upper()}, id="a UUID in capitals"),
        pytest.param({"node_id": NODE_ID.replace("-", "")}, id="a UUID without dashes"),
        pytest.param({"node_id": NODE_ID + "/x"}, id="a path in the node id"),
        pytest.param({"node_key_uri": ""}, id="an empty statement"),
        pytest.param({"node_key_uri": STATEMENT.upper()}, id="a statement in capitals"),
        pytest.param({"node_key_uri": STATEMENT + "0"}, id="a long statement"),
        pytest.param({"node_key_uri": NODE_URI}, id="another node's name as a statement"),
        pytest.param({"not_after": NOW}, id="no lifetime"),
        pytest.param({"not_after": NOW - DAY}, id="a negative lifetime"),
        pytest.param({"not_after": NOW + 33 * DAY}, id="too long a lifetime"),
        pytest.param({"not_after": datetime(2026, 1, 3)}, id="no zone"),  # noqa: DTZ001
        pytest.param({"spki_der": b""}, id="no key"),
        pytest.param(
            {"spki_der": spki_of(ec.generate_private_key(ec.SECP521R1()))}, id="a key refused"
        ),
    ],
)
def test_an_order_outside_the_profile_is_refused_whoever_sends_it(change: dict[str, Any]) -> None:
    """The signer trusts no worker: whoever has one still gets node certificates only."""
    good = order()

    with pytest.raises(OrderRefused) as caught:
        AUTHORITY.issue([good, replace(good, **change)])

    assert caught.value.index == 1
    assert isinstance(caught.value, BadArgument)


def test_one_bad_order_stops_the_whole_call() -> None:
    """A caller that misses one certificate must not pair the rest with the wrong machines."""
    signed: list[bytes] = []

    class Counting:
        def public_key(self) -> ec.EllipticCurvePublicKey:
            return CA_KEY.public_key()

        def sign(self, data: bytes, algorithm: ec.EllipticCurveSignatureAlgorithm) -> bytes:
            signed.append(data)
            return CA_KEY.sign(data, algorithm)

    by = Authority(Counting(), [CA], trust_domain=TRUST_DOMAIN)

    with pytest.raises(OrderRefused):
        by.issue([order(), order(tenant="no slug")])

    assert signed == []


def test_certificates_come_in_the_order_of_their_orders() -> None:
    ids = [f"0190163d-8694-739b-aea5-{n:012x}" for n in range(20)]

    made = AUTHORITY.issue([order(KEYS[0], node_id=node_id) for node_id in ids])

    for node_id, certificate in zip(ids, made, strict=True):
        assert node_id.encode() in certificate.der


def test_serials_are_random_and_leading_zeros_do_not_break_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """128 bits: no two in a lifetime, and nobody can aim a collision at the next one."""
    wanted = order()
    assert len({made.serial for made in AUTHORITY.issue([wanted] * 100)}) == 100

    for serial in (b"\0\0" + b"\x81" * 14, b"\xff" * 16, bytes(15) + b"\1"):
        monkeypatch.setattr(os, "urandom", lambda _, serial=serial: serial)
        (made,) = AUTHORITY.issue([wanted])
        assert made.serial == serial
        parsed = x509.load_der_x509_certificate(made.der)
        assert parsed.serial_number == int.from_bytes(serial, "big")


def test_nothing_is_valid_beyond_the_issuers_own_life() -> None:
    """A certificate that outlives its issuer fails in the field, on a day nobody chose."""
    ends = NOW + CA_LIFETIME
    early = issued(order(not_before=CA.not_valid_before_utc, not_after=NOW + DAY))
    late = issued(order(not_before=ends - timedelta(hours=1), not_after=ends + DAY))

    assert early.not_valid_before_utc == CA.not_valid_before_utc
    assert late.not_valid_after_utc == CA.not_valid_after_utc


@pytest.mark.parametrize("offset", [timedelta(0), DAY], ids=["at its end", "later"])
def test_an_expired_ca_is_unavailable_and_not_the_machines_fault(offset: timedelta) -> None:
    """A join is tried again when the operator has put it right; it is not refused."""
    at = CA.not_valid_after_utc + offset

    with pytest.raises(SignerUnavailable):
        AUTHORITY.issue([order(not_before=at, not_after=at + DAY)])


@pytest.mark.parametrize("offset", [BACKDATE, -BACKDATE, DAY, -DAY])
def test_a_signer_with_a_clock_signs_for_now_alone(offset: timedelta) -> None:
    """Who has taken over a worker cannot store up certificates for next year."""
    AUTHORITY.issue([order()], now=NOW + BACKDATE / 2)

    with pytest.raises(SignerUnavailable, match="clocks"):
        AUTHORITY.issue([order()], now=NOW + offset)


def test_time_zones_change_nothing() -> None:
    """Workers run with any TZ; certificates speak UTC."""
    tokyo = issued(
        order(
            not_before=NOW.astimezone(ZoneInfo("Asia/Tokyo")),
            not_after=(NOW + DAY).astimezone(ZoneInfo("Asia/Tokyo")),
        )
    )

    assert tokyo.not_valid_before_utc == NOW - BACKDATE
    assert tokyo.not_valid_after_utc == NOW + DAY


def test_a_p384_authority_signs_with_sha384() -> None:
    key, certificate = create_ca(TRUST_DOMAIN, now=NOW, key=ec.generate_private_key(ec.SECP384R1()))
    by = Authority(key, [certificate], trust_domain=TRUST_DOMAIN)

    made = issued(order(), by)

    assert isinstance(made.signature_hash_algorithm, SHA384)
    made.verify_directly_issued_by(certificate)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda: Authority(
                ec.generate_private_key(ec.SECP256R1()), [CA], trust_domain=TRUST_DOMAIN
            ),
            id="another key",
        ),
        pytest.param(lambda: Authority(CA_KEY, [], trust_domain=TRUST_DOMAIN), id="no certificate"),
        pytest.param(
            lambda: Authority(CA_KEY, [CA], trust_domain="Fleet.example"), id="trust domain"
        ),
        pytest.param(
            lambda: Authority(
                CA_KEY, [CA, create_ca(TRUST_DOMAIN, now=NOW)[1]], trust_domain=TRUST_DOMAIN
            ),
            id="no chain",
        ),
        pytest.param(
            lambda: Authority(
                key := ec.generate_private_key(ec.SECP521R1()),
                [create_ca(TRUST_DOMAIN, now=NOW, key=key)[1]],
                trust_domain=TRUST_DOMAIN,
            ),
            id="P-521",
        ),
        pytest.param(
            lambda: Authority(
                key := ec.generate_private_key(ec.SECP256R1()),
                [issued(order(key)), CA],
                trust_domain=TRUST_DOMAIN,
            ),
            id="a node's certificate as a CA",
        ),
    ],
)
def test_an_authority_that_could_not_work_does_not_start(make: Callable[[], Authority]) -> None:
    with pytest.raises(ConfigRefused):
        make()


def test_the_chain_leaves_out_a_root_above_and_keeps_a_single_one() -> None:
    """An agent has the root from its trust bundle; a server needs the rest to build the path."""
    assert len(authority().chain) == 1
    root_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")])
    root = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(root_key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(CA.extensions.get_extension_for_class(x509.KeyUsage).value, critical=True)
        .sign(root_key, SHA256())
    )
    below = x509.CertificateBuilder().subject_name(CA.subject).issuer_name(name)
    below = below.public_key(CA_KEY.public_key()).serial_number(2)
    below = below.not_valid_before(NOW).not_valid_after(NOW + DAY)
    for extension in CA.extensions:
        below = below.add_extension(extension.value, critical=extension.critical)
    issuing = below.sign(root_key, SHA256())

    by = Authority(CA_KEY, [issuing, root], trust_domain=TRUST_DOMAIN)

    assert [x509.load_der_x509_certificate(c) for c in by.chain] == [issuing]
