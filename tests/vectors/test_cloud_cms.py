"""CMS that AWS and Azure signed, and CMS that somebody else did."""

import json
from base64 import b64decode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.asn1_cms import read_by_asn1crypto
from tests.support.vectors import vector
from watchword.handlers.attestors.cloud_iid import cms
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

pytestmark = pytest.mark.vectors

AWS = {
    "aws-iid/ap-southeast-2-2026-02/rsa2048.p7.b64": "rsa2048/ap-southeast-2",
    "aws-iid/us-west-2-2021-rsa2048/rsa2048.p7.b64": "rsa2048/us-west-2",
    "mpl-2.0/aws-iid/iid-verify-2018/rsa2048": "rsa2048/us-west-2",
    "mpl-2.0/aws-iid/iid-verify-2018/rsa2048-with-header": "rsa2048/us-west-2",
    "aws-iid/us-east-1-2016-dsa/pkcs7-dsa.p7.b64": "dsa/us-east-1",
    "mpl-2.0/aws-iid/iid-verify-2018/pkcs7": "dsa/us-west-2",
    "mpl-2.0/aws-iid/iid-verify-2018/pkcs7-with-header": "dsa/us-west-2",
}


def armoured(name: str) -> bytes:
    """Return the bytes behind base64, with or without the lines of PEM."""
    lines = vector(name).read_text().splitlines()
    return b64decode("".join(line for line in lines if not line.startswith("-----")))


def aws_certificate(name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(vector(f"aws-certs/{name}.pem").read_bytes())


def verify_as_named(data: bytes) -> cms.Signed:
    """Verify with the certificate inside, whoever's it is."""
    signed = cms.read(data)
    cms.verify(signed, x509.load_der_x509_certificate(cms.named_certificate(signed)).public_key())
    return signed


@pytest.mark.parametrize(("name", "anchor"), AWS.items())
def test_what_aws_signed_holds_under_its_regions_certificate(name: str, anchor: str) -> None:
    """AWS sends BER of indefinite length with strings in pieces, which strict parsers refuse."""
    signed = cms.read(armoured(name))

    certificate = aws_certificate(anchor)
    assert cms.names(signed, certificate.public_bytes(Encoding.DER))
    cms.verify(signed, certificate.public_key(), unsafe_dsa=True)
    assert json.loads(signed.content)["region"] in anchor


@pytest.mark.parametrize("name", [name for name, anchor in AWS.items() if "dsa" in anchor])
def test_dsa_is_refused_unless_somebody_says_otherwise(name: str) -> None:
    """DSA-1024 with SHA-1 is within reach of people with money."""
    signed = cms.read(armoured(name))
    with pytest.raises(Unproven, match="legacy-signature"):
        cms.verify(signed, aws_certificate(AWS[name]).public_key())


def test_another_regions_certificate_does_not_hold() -> None:
    """RSA-2048 certificates are one to a region, so they prove it."""
    signed = cms.read(armoured("aws-iid/ap-southeast-2-2026-02/rsa2048.p7.b64"))
    with pytest.raises(Unproven, match="signature"):
        cms.verify(signed, aws_certificate("rsa2048/us-east-1").public_key())


def test_the_certificate_that_azure_names_made_the_signature() -> None:
    """Azure sends no signed attributes and writes the signature algorithm where the digest's belongs."""
    (shown,) = json.loads(vector("mpl-2.0/azure-imds/azure_signature_good.json").read_text())
    signed = verify_as_named(b64decode(shown["document"]))
    assert json.loads(signed.content)["vmId"] == shown["vmId"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("azure_message_bad", "cms-malformed"), ("azure_signature_bad", "signature")],
)
def test_what_was_changed_on_the_way_is_refused(name: str, reason: str) -> None:
    """One has a byte too many, the other another vmId; everything else about these two is right."""
    data = armoured(f"mpl-2.0/azure-imds/{name}")
    with pytest.raises(Unproven, match=reason):
        verify_as_named(data)


def test_what_is_no_base64_never_gets_here() -> None:
    """The fixture of another project that is plain text: read as bytes it is no BER."""
    with pytest.raises(Unproven, match="cms-malformed"):
        cms.read(vector("mpl-2.0/aws-iid/iid-verify-2018/not-valid-datastructure").read_bytes())


@pytest.mark.parametrize("name", ["aws-iid/us-west-2-2021-rsa2048/rsa2048.p7.b64"])
def test_cuts_are_refused(name: str) -> None:
    """No length of a truncated blob may get past the bounds or crash the reader."""
    data = armoured(name)
    for end in range(0, len(data), 5):
        with pytest.raises(Unproven):
            cms.read(data[:end])


def test_no_changed_byte_holds_for_another_content() -> None:
    """Whatever one byte is changed, it is the same content with a good signature, or it is refused."""
    data = bytearray(armoured("aws-iid/us-west-2-2021-rsa2048/rsa2048.p7.b64"))
    certificate = aws_certificate("rsa2048/us-west-2")
    content = cms.read(bytes(data)).content
    for at in range(0, len(data), 3):
        data[at] ^= 0x41
        try:
            signed = cms.read(bytes(data))
            cms.verify(signed, certificate.public_key())
        except Unproven:
            pass
        else:
            assert signed.content == content
        data[at] ^= 0x41


@pytest.mark.parametrize("name", [*AWS, "mpl-2.0/azure-imds/azure_signature_bad"])
def test_our_reading_says_nothing_that_asn1crypto_does_not(name: str) -> None:
    """Its model knows all of CMS; whatever we take of genuine bytes, whole or damaged, it reads the same."""
    data = bytearray(armoured(name))
    assert cms.read(bytes(data)) == read_by_asn1crypto(bytes(data))
    for at in range(0, len(data), 7):
        was = data[at]
        for data[at] in (was ^ 0x01, was ^ 0x20, was ^ 0x80):
            try:
                ours = cms.read(bytes(data))
                theirs = read_by_asn1crypto(bytes(data))
            except (Unproven, ValueError):
                continue  # refused; or damaged where nobody looks, in the time of signing
            assert ours == theirs, at
        data[at] = was
