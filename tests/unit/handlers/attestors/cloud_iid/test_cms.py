"""CMS from people who are no cloud: each trick has its own reason, and none costs much."""

import pytest

from tests.support.clouds import Certified, Cms, certify, weak_digest
from watchword.handlers.attestors.cloud_iid import ber, cms
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

CONTENT = b'{"instanceId":"i-0123456789abcdef0"}'


@pytest.fixture(scope="module")
def signer() -> Certified:
    return certify("metadata.azure.com")


def read_and_verify(data: bytes, signer: Certified) -> cms.Signed:
    signed = cms.read(data)
    cms.verify(signed, signer.certificate.public_key())
    return signed


@pytest.mark.parametrize("attributes", [True, False])
def test_what_is_signed_comes_out(signer: Certified, attributes: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The other tests mean something only if the untouched form is taken."""
    made = Cms(CONTENT, signer, attributes=attributes).make()
    assert read_and_verify(made, signer).content == CONTENT


def test_two_signers_are_refused(signer: Certified) -> None:
    """Whoever checks one and believes the other has been fooled before."""
    with pytest.raises(Unproven, match="cms-signers"):
        cms.read(Cms(CONTENT, signer, signers=2).make())


def test_no_signer_is_refused(signer: Certified) -> None:
    """A loop over no signatures finds none that is wrong."""
    with pytest.raises(Unproven, match="cms-signers"):
        cms.read(Cms(CONTENT, signer, signers=0).make())


def test_detached_content_is_refused(signer: Certified) -> None:
    """The content would come from somewhere that nobody signed."""
    with pytest.raises(Unproven, match="cms-detached"):
        cms.read(Cms(CONTENT, signer, detached=True).make())


@pytest.mark.parametrize("name", ["content_type", "message_digest"])
def test_a_missing_signed_attribute_is_refused(signer: Certified, name: str) -> None:
    """Without the digest nothing ties the signature to the content."""
    with pytest.raises(Unproven, match="cms-attributes"):
        cms.read(Cms(CONTENT, signer, without=name).make())


@pytest.mark.parametrize("name", ["content_type", "message_digest"])
def test_a_doubled_signed_attribute_is_refused(signer: Certified, name: str) -> None:
    """Of two digests one may be the content's and the other the signature's."""
    with pytest.raises(Unproven, match="cms-attributes"):
        cms.read(Cms(CONTENT, signer, twice=name).make())


def test_attributes_about_another_content_are_refused(signer: Certified) -> None:
    """The signature over the attributes is good; the content was exchanged."""
    with pytest.raises(Unproven, match="cms-attributes"):
        cms.read(Cms(CONTENT, signer, about=b"other").make())


def test_a_broken_digest_is_refused(signer: Certified) -> None:
    """MD5 collides on purpose."""
    made = Cms(CONTENT, signer, changes={"digest_algorithm": weak_digest()}).make()
    with pytest.raises(Unproven, match="cms-algorithm"):
        cms.read(made)


def test_the_certificate_that_is_named_counts_and_not_the_first(signer: Certified) -> None:
    """An attacker's certificate in front of the real one must not be the one that is looked at."""
    attacker = certify("metadata.azure.com")
    for order in ((attacker.der, signer.der), (signer.der, attacker.der)):
        signed = cms.read(Cms(CONTENT, signer, certificates=order).make())
        assert cms.named_certificate(signed) == signer.der


def test_two_certificates_of_the_signers_name_are_refused(signer: Certified) -> None:
    """A name that leads to two certificates leads to the attacker's choice."""
    serial = signer.certificate.serial_number
    twin = certify("metadata.azure.com", serial=serial)
    signed = cms.read(Cms(CONTENT, signer, certificates=(signer.der, twin.der)).make())
    with pytest.raises(Unproven, match="cms-certificate"):
        cms.named_certificate(signed)


def test_a_signers_name_without_certificate_is_refused(signer: Certified) -> None:
    """Nothing is fetched to find it."""
    signed = cms.read(Cms(CONTENT, signer, certificates=(certify("other").der,)).make())
    with pytest.raises(Unproven, match="cms-certificate"):
        cms.named_certificate(signed)


def test_another_key_of_the_same_name_does_not_hold(signer: Certified) -> None:
    """Names are free to choose."""
    with pytest.raises(Unproven, match="signature"):
        read_and_verify(Cms(CONTENT, certify("metadata.azure.com")).make(), signer)


def nested(depth: int) -> bytes:
    return b"\x30\x80" * depth + b"\x00\x00" * depth


@pytest.mark.parametrize(
    "data",
    [
        nested(1000),
        b"\x24\x80" * 1000 + b"\x00\x00" * 1000,
        b"\x30\x80" * 16000,
        b"\x30\x80" + b"\x05\x00" * 8000 + b"\x00\x00",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x85\x00\x00\x00\x00\x01\x00",
        b"\x04\x80\x00\x00",
        b"\x30\x02\x00\x00",
        b"\x3f\x81\x01\x00",
        b"\x30\x80\x30\x80\x00\x00",
        b"\x30\x80\x00\x00\x00",
        b"\x30\x03\x30\x02\x05",
        b"",
        b"0",
        b"\x30\x82" + b"\xff" * 40000,
    ],
)
def test_bombs_and_broken_lengths_are_refused(data: bytes) -> None:
    """A few KB of nesting must not cost a worker its stack or its second."""
    with pytest.raises(Unproven, match="cms-malformed"):
        cms.read(data)


def test_what_is_within_the_bounds_passes_them() -> None:
    """The bounds must not refuse what they are there to let through."""
    ber.parse(nested(ber.MAX_DEPTH))
    with pytest.raises(Unproven):
        ber.parse(nested(ber.MAX_DEPTH + 1))
