"""Endorsement certificates in the forms in which vendors hand them out."""

import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from watchword.handlers.attestors.tpm.certificates import read_certificate, unwrap
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.errors import BadArgument
from watchword.streams.agent.tpm.certificate import read_endorsement

DER = b"\x30\x06" + b"\xfb\xff\xbf\xfe\xef\xff"


def _json(text: str) -> bytes:
    return json.dumps({"pubhash": "abc", "certificate": text}).encode()


@pytest.mark.case("B52")
@pytest.mark.parametrize(
    "data",
    [
        DER,
        _json(urlsafe_b64encode(DER).decode()),
        _json(urlsafe_b64encode(DER).decode().rstrip("=")),
        _json(urlsafe_b64encode(DER).decode().replace("=", "%3D")),
        b"-----BEGIN CERTIFICATE-----\n" + b64encode(DER) + b"\n-----END CERTIFICATE-----\n",
    ],
)
def test_every_form_becomes_der(data: bytes) -> None:
    """Intel's service answers with base64url in JSON; what is sent is what it certifies."""
    assert read_endorsement(data) == (DER, ())


def test_what_an_nv_index_holds_is_passed_on() -> None:
    """A vendor's prefix and the padding are the verifier's to judge."""
    stored = b"\x10\x01\x00\x00\x08" + DER + b"\xff\xff"
    assert read_endorsement(stored) == (stored, ())


def test_cas_behind_the_first_block_are_intermediates() -> None:
    """One file may hold the chain, as other software expects it."""
    block = b"-----BEGIN CERTIFICATE-----\n%b\n-----END CERTIFICATE-----\n"
    data = block % b64encode(DER) + block % b64encode(DER + b"x")
    assert read_endorsement(data) == (DER, (DER + b"x",))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        _json("!!!"),
        _json(""),
        _json("AAAA"),
        b'{"certificate": 7}',
        b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----",
        b"hello",
    ],
)
def test_what_is_no_certificate_is_said_to_the_operator(data: bytes) -> None:
    """A wrong file is found on the machine, and not by a refusal that says nothing."""
    with pytest.raises(BadArgument):
        read_endorsement(data)


@pytest.mark.case("B52")
def test_verifier_takes_no_json() -> None:
    """A machine that passes the service's answer on is refused as cleanly as any other."""
    text = _json(urlsafe_b64encode(DER).decode())
    with pytest.raises(Malformed):
        read_certificate(text)
    with pytest.raises(Malformed):
        unwrap(text)
