"""A node's key in the TPM, as far as its file tells."""

from base64 import b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.tpm import SIGNING, TpmKey, area, new_key
from watchword.handlers.crypto import der
from watchword.streams.agent.tpm.node_key import is_in_tpm, read_tpm_key

_OID = bytes.fromhex("06066781050a0103")


def _pem(public: bytes, *, authorised: bytes = bytes.fromhex("a003010101")) -> bytes:
    parent = b"\x02\x04\x40\x00\x00\x01"
    content = _OID + authorised + parent
    content += der.tlv(der.OCTET_STRING, public) + der.tlv(der.OCTET_STRING, b"\0\1x")
    body = b64encode(der.tlv(der.SEQUENCE, content))
    return b"-----BEGIN TSS2 PRIVATE KEY-----\n" + body + b"\n-----END TSS2 PRIVATE KEY-----\n"


def _public(key: TpmKey) -> bytes:
    return area(key, SIGNING)


@pytest.mark.parametrize("authorised", [bytes.fromhex("a003010101"), b""])
def test_public_half_is_the_keys(authorised: bytes) -> None:
    """What is sent is the CSR's key; the file and it have to belong together."""
    key = new_key("p256")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    pem = _pem(_public(key), authorised=authorised)
    assert is_in_tpm(pem)
    assert read_tpm_key(pem).public_key() == key.public_key()


def test_file_of_another_kind_is_no_key_in_a_tpm() -> None:
    """Every cut and every other content is told, and crashes nothing."""
    rsa_key = new_key("rsa2048")
    assert isinstance(rsa_key, rsa.RSAPrivateKey)
    with pytest.raises(ValueError, match="another kind"):
        read_tpm_key(_pem(_public(rsa_key)))
    for data in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", _pem(b"")):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
            read_tpm_key(data)
