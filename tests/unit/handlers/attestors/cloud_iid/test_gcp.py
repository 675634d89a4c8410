"""Tokens that Google's key signed, and that are not for us or name no machine; headers with an opinion."""

import base64
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.clouds import START
from watchword.handlers.attestors.cloud_iid.config import GcpConfig
from watchword.handlers.attestors.cloud_iid.document import Identity
from watchword.handlers.attestors.cloud_iid.gcp import audience_for, prove
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

NOW = START + timedelta(minutes=10)
CONFIG = GcpConfig()
CSR = b"c" * 32
HEADER = {"alg": "RS256", "kid": "k1", "typ": "JWT"}
ENGINE = {
    "instance_id": "3015378661047007286",
    "instance_name": "web-1",
    "project_id": "acme-prod",
    "zone": "europe-west10-b",
}
CLAIMS: dict[str, Any] = {
    "iss": "https://accounts.google.com",
    "aud": audience_for(CONFIG, CSR),
    "iat": int(START.timestamp()),
    "exp": int((START + timedelta(hours=1)).timestamp()),
    "google": {"compute_engine": ENGINE},
}


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def token_of(
    key: rsa.RSAPrivateKey, claims: object, header: object = None, encoded: bytes | None = None
) -> bytes:
    signed = b64(json.dumps(header or HEADER).encode()) + b"."
    signed += b64(encoded if encoded is not None else json.dumps(claims).encode())
    return signed + b"." + b64(key.sign(signed, padding.PKCS1v15(), hashes.SHA256()))


def proved(token: bytes, key: rsa.RSAPrivateKey) -> Identity:
    return prove(token, {"k1": key.public_key()}, CONFIG, audience_for(CONFIG, CSR), NOW)


def test_a_token_for_this_csr_proves_its_instance(key: rsa.RSAPrivateKey) -> None:
    """The others mean something only if this one passes; region 10 has two digits."""
    assert proved(token_of(key, CLAIMS), key) == Identity(
        "gcp", "acme-prod", "3015378661047007286", "europe-west10"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": audience_for(CONFIG, b"d" * 32)}, "audience"),
        ({"aud": [audience_for(CONFIG, CSR)]}, "audience"),
        ({"aud": "watchword"}, "audience"),
        ({"iss": "accounts.google.com"}, "issuer"),
        ({"iss": "https://accounts.google.com/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"exp": CLAIMS["exp"] + 1}, "lifetime"),
        ({"exp": CLAIMS["iat"] - 3}, "stale"),
        ({"nbf": CLAIMS["iat"] + 3600}, "not-yet"),
        ({"iat": str(CLAIMS["iat"])}, "token"),
        ({"iat": True}, "token"),
        ({"exp": 1e12}, "token"),
        ({"exp": 2**70}, "token"),
        ({"exp": 253402300799}, "lifetime"),
        ({"google": None}, "no-instance-claims"),
        ({"google": {}}, "no-instance-claims"),
        ({"google": {"compute_engine": []}}, "no-instance-claims"),
        ({"google": "compute_engine"}, "no-instance-claims"),
        ({"google": {"compute_engine": {}}}, "document"),
        ({"google": {"compute_engine": {**ENGINE, "zone": "us-central1"}}}, "document"),
        ({"google": {"compute_engine": {**ENGINE, "zone": "us-central1-c\0"}}}, "document"),
        (
            {"google": {"compute_engine": {**ENGINE, "zone": "projects/1/zones/us-central1-c"}}},
            "document",
        ),
        ({"google": {"compute_engine": {**ENGINE, "zone": "us.central1-c"}}}, "document"),
        (
            {"google": {"compute_engine": {**ENGINE, "instance_id": 3015378661047007286}}},
            "document",
        ),
        ({"google": {"compute_engine": {**ENGINE, "project_id": "Acme Prod"}}}, "document"),
    ],
)
@pytest.mark.case("B30")
def test_what_google_says_of_something_else_is_refused(
    key: rsa.RSAPrivateKey, changes: dict[str, Any], reason: str
) -> None:
    """A good signature over the wrong thing is the usual way in."""
    with pytest.raises(Unproven, match=f"^{reason}$"):
        proved(token_of(key, {**CLAIMS, **changes}), key)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"alg": "none"}, "token-header"),
        ({"alg": "HS256"}, "token-header"),
        ({"alg": "RS512"}, "token-header"),
        ({"alg": ["RS256"]}, "token-header"),
        ({"jwk": {"kty": "RSA"}}, "token-header"),
        ({"jku": "https://evil.example/keys"}, "token-header"),
        ({"x5u": "https://evil.example/chain"}, "token-header"),
        ({"x5c": ["AAAA"]}, "token-header"),
        ({"crit": ["exp"]}, "token-header"),
        ({"typ": "at+jwt"}, "token-header"),
        ({"kid": "other"}, "token-key"),
        ({"kid": None}, "token-key"),
        ({"kid": ["k1"]}, "token-key"),
    ],
)
def test_a_header_decides_nothing(
    key: rsa.RSAPrivateKey, changes: dict[str, Any], reason: str
) -> None:
    """Neither algorithm nor key nor address may come from whoever made the token."""
    with pytest.raises(Unproven, match=f"^{reason}$"):
        proved(token_of(key, CLAIMS, {**HEADER, **changes}), key)


def test_our_public_key_is_no_secret_of_hs256(key: rsa.RSAPrivateKey) -> None:
    """The oldest trick: HMAC with what everybody knows."""
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = b64(json.dumps({**HEADER, "alg": "HS256"}).encode()) + b"."
    signed += b64(json.dumps(CLAIMS).encode())
    token = signed + b"." + b64(hmac.digest(public, signed, "sha256"))
    with pytest.raises(Unproven, match="token-header"):
        proved(token, key)


def test_a_claim_that_is_there_twice_is_refused(key: rsa.RSAPrivateKey) -> None:
    """Of two audiences one reader sees the first and another the last."""
    encoded = json.dumps(CLAIMS).replace("{", '{"aud": "other", ', 1).encode()
    with pytest.raises(Unproven, match=r"^token$"):
        proved(token_of(key, None, encoded=encoded), key)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t + b".",
        lambda t: t.replace(b".", b"..", 1),
        lambda t: t + b"=",
        lambda t: b" " + t,
        lambda t: t + b"\n",
        lambda t: t.rsplit(b".", 1)[0],
        lambda t: t + b"A" * 9000,
        lambda _: b"",
        lambda _: b"..",
        lambda _: b"\xff.\xff.\xff",
    ],
)
def test_another_spelling_is_no_token(key: rsa.RSAPrivateKey, change: Any) -> None:  # noqa: ANN401 - a lambda
    """One content has one form."""
    with pytest.raises(Unproven, match=r"^token$"):
        proved(change(token_of(key, CLAIMS)), key)
