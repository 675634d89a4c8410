"""Published keys."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.crypto import DAY, NOW, TRUST_DOMAIN, jws_signer
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.endorsements import endorse, pin_of, read_endorsement
from watchword.handlers.crypto.jws import JwsSigner, unverified_payload
from watchword.handlers.crypto.keysets import (
    HeldKey,
    bootstrap_key_set,
    choose_encryption_key,
    read_key_set,
    read_trust_bundle,
    sign_key_set,
    sign_trust_bundle,
)
from watchword.handlers.errors import SignatureBroken, Unavailable
from watchword.schemas.canonical import b64, canonical, parse_canonical
from watchword.schemas.errors import SchemaError
from watchword.schemas.keyset import SUITE, TYP_TRUST_BUNDLE, SigningKey
from watchword.schemas.responses import TYP_KEY_SET

JWS = jws_signer()


def held(kid: str, begins: datetime = NOW - DAY, ends: datetime = NOW + DAY) -> HeldKey:
    return HeldKey(kid, hpke.generate(), begins, ends)


def key_set(*keys: HeldKey, version: int = 3, jws: JwsSigner = JWS) -> bytes:
    return sign_key_set(
        jws, version=version, issued_at=NOW, trust_domain=TRUST_DOMAIN, encryption=keys
    )


def test_an_agent_reads_what_was_signed() -> None:
    key = held("e-1")

    found = read_key_set(key_set(key), JWS.public, kid=JWS.kid, minimum_version=3)

    assert (found.version, found.trust_domain) == (3, TRUST_DOMAIN)
    assert found.signing == SigningKey(kid=JWS.kid, public=b64(JWS.public))
    assert [(e.kid, e.suite, e.public) for e in found.encryption] == [
        ("e-1", SUITE, b64(key.key.public))
    ]


def test_an_older_set_than_one_stored_is_refused() -> None:
    """Its private keys may be known by now; that is why there is a newer one."""
    with pytest.raises(SignatureBroken):
        read_key_set(key_set(held("e-1"), version=2), JWS.public, minimum_version=3)


def test_a_set_of_another_key_or_type_is_refused() -> None:
    bundle = sign_trust_bundle(
        JWS, version=3, issued_at=NOW, trust_domain=TRUST_DOMAIN, authorities=[b"ca"]
    )

    for token in (key_set(held("e-1"), jws=jws_signer()), bundle):
        with pytest.raises(SignatureBroken):
            read_key_set(token, JWS.public)


def test_a_set_that_names_another_signing_key_is_refused() -> None:
    """It would hand the agent over without an endorsement."""
    value = parse_canonical(unverified_payload(key_set(held("e-1"))))
    value["signing"]["public"] = b64(jws_signer().public)

    with pytest.raises(SignatureBroken):
        read_key_set(JWS.sign(canonical(value), TYP_KEY_SET), JWS.public)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"public": b64(bytes(32))}, id="a point of low order"),
        pytest.param({"public": "!" * 44}, id="no base64"),
        pytest.param({"suite": "DHKEM-P256"}, id="another suite"),
        pytest.param({"notBefore": "2026-13-01T00:00:00.000Z"}, id="no date"),
        pytest.param({"kid": "../e-1"}, id="a path"),
    ],
)
def test_a_key_that_cannot_be_used_makes_the_set_unusable(change: dict[str, Any]) -> None:
    value = parse_canonical(unverified_payload(key_set(held("e-1"))))
    value["encryption"][0] |= change

    with pytest.raises(SchemaError):
        read_key_set(JWS.sign(canonical(value), TYP_KEY_SET), JWS.public)


def test_one_name_for_two_keys_makes_the_set_unusable() -> None:
    """A worker finds the private key by name."""
    with pytest.raises(SchemaError):
        read_key_set(key_set(held("e-1"), held("e-1")), JWS.public)


def test_past_keys_are_not_published() -> None:
    """A worker still opens with them for a day, but nobody may start to seal to them."""
    token = key_set(held("past", NOW - 2 * DAY, NOW), held("present"))

    assert [key.kid for key in read_key_set(token, JWS.public).encryption] == ["present"]
    with pytest.raises(Unavailable):
        key_set(held("past", NOW - 2 * DAY, NOW))


@pytest.mark.parametrize(
    ("at", "kid"),
    [
        pytest.param(NOW, "old", id="before the new one begins"),
        pytest.param(NOW + timedelta(hours=1), "new", id="the moment it begins"),
        pytest.param(NOW + DAY + timedelta(hours=2), "new", id="the old one is past"),
        pytest.param(datetime(1970, 1, 1, tzinfo=UTC), "old", id="a clock without a battery"),
    ],
)
def test_the_newest_usable_key_is_chosen(at: datetime, kid: str) -> None:
    found = read_key_set(
        key_set(held("new", NOW + timedelta(hours=1), NOW + 90 * DAY), held("old")), JWS.public
    )

    assert choose_encryption_key(found, at).kid == kid


def test_without_a_usable_key_nothing_is_sealed() -> None:
    found = read_key_set(key_set(held("e-1")), JWS.public)

    with pytest.raises(Unavailable):
        choose_encryption_key(found, NOW + DAY)


def test_a_pin_alone_is_enough_to_start_from() -> None:
    """An agent's first contact: it knows a digest from its operator, and no key."""
    token = key_set(held("e-1"))

    assert bootstrap_key_set(token, pin_of(JWS.public)).signing.kid == JWS.kid


def test_a_pin_takes_no_other_key_and_no_other_signature() -> None:
    """Whoever answers in the service's place knows the public key and can claim it."""
    other = jws_signer(JWS.kid)
    claims_ours = other.sign(unverified_payload(key_set(held("e-1"))), TYP_KEY_SET)

    for token in (key_set(held("e-1"), jws=other), claims_ours):
        with pytest.raises(SignatureBroken):
            bootstrap_key_set(token, pin_of(JWS.public))


def test_a_pin_is_the_digest_of_the_spki_that_openssl_prints() -> None:
    """An operator can make it with `openssl pkey -pubout -outform DER | sha256sum`."""
    public = Ed25519PrivateKey.generate().public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    assert pin_of(public.public_bytes_raw()) == f"sha256:{sha256(spki).hexdigest()}"


def test_a_trust_bundle_is_read_and_an_older_one_refused() -> None:
    token = sign_trust_bundle(
        JWS, version=3, issued_at=NOW, trust_domain=TRUST_DOMAIN, authorities=[b"ca"]
    )

    assert read_trust_bundle(token, JWS.public, minimum_version=3).authorities == (b64(b"ca"),)
    for minimum, public in ((4, JWS.public), (1, jws_signer().public)):
        with pytest.raises(SignatureBroken):
            read_trust_bundle(token, public, minimum_version=minimum)
    with pytest.raises(SchemaError):
        read_trust_bundle(JWS.sign(b"{}", TYP_TRUST_BUNDLE), JWS.public)


def test_the_pinned_key_hands_over_to_the_one_it_names() -> None:
    """The only way to a new signing key without touching every machine."""
    new = jws_signer("s-2")

    token = endorse(JWS, kid=new.kid, public=new.public, issued_at=NOW, trust_domain=TRUST_DOMAIN)

    found = read_endorsement(token, JWS.public, trust_domain=TRUST_DOMAIN)
    assert found == SigningKey(kid="s-2", public=b64(new.public))
    for public, trust_domain in ((new.public, TRUST_DOMAIN), (JWS.public, "other.example")):
        with pytest.raises(SignatureBroken):
            read_endorsement(token, public, trust_domain=trust_domain)


def test_a_new_signing_key_must_be_a_key() -> None:
    token = endorse(JWS, kid="s-2", public=b"x" * 31, issued_at=NOW, trust_domain=TRUST_DOMAIN)

    with pytest.raises(SchemaError):
        read_endorsement(token, JWS.public, trust_domain=TRUST_DOMAIN)
