"""Signed documents."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws as oracle
from joserfc.jwk import OKPKey

from watchword.handlers.crypto.jws import MAX_TOKEN_BYTES, JwsSigner, unverified_payload, verify
from watchword.handlers.errors import SignatureBroken
from watchword.schemas.canonical import b64url, canonical

PRIVATE = Ed25519PrivateKey.generate()
SIGNER = JwsSigner("s-1", PRIVATE)
TYP = "watchword-response"
HEADER = {"alg": "Ed25519", "kid": "s-1", "typ": TYP}
PAYLOAD = b'{"outcome":"refused"}'


def oracle_key() -> OKPKey:
    """Return the same key as the oracle's."""
    private, public = PRIVATE.private_bytes_raw(), SIGNER.public
    return OKPKey.import_key(
        {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": b64url(public).decode(),
            "d": b64url(private).decode(),
        }
    )


def token_with(header: bytes, payload: bytes = PAYLOAD) -> bytes:
    """Return a token whose signature holds, with any header."""
    signed = b64url(header) + b"." + b64url(payload)
    return signed + b"." + b64url(PRIVATE.sign(signed))


def read(token: bytes, *, typ: str = TYP, kid: str | None = "s-1") -> bytes:
    return verify(token, SIGNER.public, typ=typ, kid=kid)


@given(st.binary(max_size=2000))
def test_joserfc_reads_what_we_sign(payload: bytes) -> None:
    """Agents in other languages have ordinary JOSE libraries."""
    found = oracle.deserialize_compact(
        SIGNER.sign(payload, TYP), oracle_key(), algorithms=["Ed25519"]
    )

    assert found.payload == payload
    assert found.headers() == HEADER


@given(st.binary(max_size=2000))
def test_we_read_what_joserfc_signs(payload: bytes) -> None:
    token = oracle.serialize_compact(
        dict(sorted(HEADER.items())), payload, oracle_key(), algorithms=["Ed25519"]
    )

    assert read(token.encode()) == payload
    assert SIGNER.sign(payload, TYP) == token.encode()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"alg": "none"}, id="none"),
        pytest.param({"alg": "EdDSA"}, id="the older name of the algorithm"),
        pytest.param({"alg": "HS256"}, id="our public key as a secret"),
        pytest.param({"typ": "watchword-command"}, id="a document of another type"),
        pytest.param({"typ": None}, id="no type"),
        pytest.param({"kid": "s-2"}, id="another key's name"),
        pytest.param({"kid": 1}, id="a name that is no text"),
        pytest.param({"jwk": {"kty": "OKP"}}, id="jwk"),
        pytest.param({"jku": "https://attacker.example"}, id="jku"),
        pytest.param({"x5c": ["MA=="]}, id="x5c"),
        pytest.param({"x5u": "https://attacker.example"}, id="x5u"),
        pytest.param({"crit": ["exp"], "exp": 1}, id="crit"),
        pytest.param({"b64": False}, id="unencoded payload"),
        pytest.param({"anything": "else"}, id="an unknown member"),
    ],
)
def test_any_other_header_is_refused_even_if_the_signature_holds(change: dict[str, Any]) -> None:
    """RFC 8725, 3.1: the algorithm and the key are the reader's to choose."""
    assert read(token_with(canonical(HEADER))) == PAYLOAD  # it is the change that matters

    with pytest.raises(SignatureBroken):
        read(token_with(canonical(HEADER | change)))


@pytest.mark.parametrize("missing", sorted(HEADER))
def test_no_member_of_the_header_may_be_missing(missing: str) -> None:
    header = {name: value for name, value in HEADER.items() if name != missing}

    with pytest.raises(SignatureBroken):
        read(token_with(canonical(header)), kid=None)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(json.dumps(HEADER).encode(), id="spaces"),
        pytest.param(
            b'{"alg":"none","alg":"Ed25519","kid":"s-1","typ":"watchword-response"}', id="twice"
        ),
        pytest.param(b'{"kid":"s-1","alg":"Ed25519","typ":"watchword-response"}', id="unsorted"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"[" * 300, id="deep"),
    ],
)
def test_a_header_that_is_not_canonical_is_refused(header: bytes) -> None:
    """Two readers of one header must read the same."""
    with pytest.raises(SignatureBroken):
        read(token_with(header))


@given(st.data())
def test_no_byte_of_a_token_can_be_changed(data: st.DataObject) -> None:
    """Base64url has unused bits and `b64decode` skips junk: one document, one spelling."""
    token = SIGNER.sign(PAYLOAD, TYP)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != token[at]))

    with pytest.raises(SignatureBroken):
        read(token[:at] + bytes((other,)) + token[at + 1 :])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda token: token + b"=", id="padding"),
        pytest.param(lambda token: token + b"\n", id="a line end"),
        pytest.param(lambda token: b" " + token, id="a space"),
        pytest.param(lambda token: token + b".", id="a fourth part"),
        pytest.param(lambda token: token.rsplit(b".", 1)[0], id="no signature"),
        pytest.param(lambda token: token.rsplit(b".", 1)[0] + b".", id="an empty signature"),
        pytest.param(lambda token: token[:-1], id="cut"),
        pytest.param(lambda _: b"", id="nothing"),
        pytest.param(lambda _: b"..", id="three nothings"),
        pytest.param(lambda token: b"A" * MAX_TOKEN_BYTES + token, id="too long"),
    ],
)
def test_any_other_form_of_a_token_is_refused(change: Any) -> None:  # noqa: ANN401
    with pytest.raises(SignatureBroken):
        read(change(SIGNER.sign(PAYLOAD, TYP)))


def test_another_key_is_refused() -> None:
    token = JwsSigner("s-1", Ed25519PrivateKey.generate()).sign(PAYLOAD, TYP)

    with pytest.raises(SignatureBroken):
        read(token)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_public_key_of_another_length_verifies_nothing(length: int) -> None:
    """No path from an error to acceptance."""
    with pytest.raises(SignatureBroken):
        verify(SIGNER.sign(PAYLOAD, TYP), bytes(length), typ=TYP, kid=None)


def test_any_name_is_taken_where_none_is_expected() -> None:
    assert read(SIGNER.sign(PAYLOAD, TYP), kid=None) == PAYLOAD


def test_the_unverified_payload_is_strict_too() -> None:
    token = SIGNER.sign(PAYLOAD, TYP)

    assert unverified_payload(token) == PAYLOAD
    for broken in (b"", b"a.b", token.replace(b".", b".=", 1)):
        with pytest.raises(SignatureBroken):
            unverified_payload(broken)
