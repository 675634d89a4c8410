"""Credentials are read by the TPM they are for, while it holds the key they name; and which keys are fit."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.tpm import RESTRICTED_SIGNING, SIGNING, STORAGE, SoftTpm, area, name_of, new_key
from watchword.handlers.attestors.tpm.credential import make_credential
from watchword.handlers.attestors.tpm.keys import UnfitKey, check_ak, check_ek
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import read_public_2b

SECRET = bytes(range(32))


@pytest.mark.case("B39")
@pytest.mark.parametrize("kind", ["rsa2048", "rsa3072", "p256", "p384"])
def test_the_tpm_reads_it_for_the_named_key_alone(kind: str) -> None:
    """A copied public area of somebody else's key gets no secret out of a genuine TPM."""
    tpm = SoftTpm(ek=kind)
    made = make_credential(read_public_2b(tpm.ek), name_of(tpm.ak), SECRET)

    assert tpm.activate(made.id_object, made.encrypted_secret) == SECRET
    with pytest.raises(ValueError, match="integrity"):
        tpm.activate(made.id_object, made.encrypted_secret, name_of(tpm.ek))


def test_no_two_credentials_are_alike() -> None:
    """The seed is fresh each time: two credentials of one secret share nothing."""
    tpm = SoftTpm()
    ek = read_public_2b(tpm.ek)
    made = {make_credential(ek, name_of(tpm.ak), SECRET).id_object for _ in range(100)}
    assert len(made) == 100


@pytest.mark.parametrize(
    "attributes",
    [
        SIGNING,
        RESTRICTED_SIGNING & ~0x02,
        RESTRICTED_SIGNING & ~0x10,
        RESTRICTED_SIGNING & ~0x20,
        RESTRICTED_SIGNING | 0x20000,
        STORAGE,
        0,
    ],
)
def test_attestation_key_with_other_attributes_is_refused(attributes: int) -> None:
    """A key that may sign anything, or came from outside, signs quotes that no TPM made."""
    with pytest.raises(UnfitKey):
        check_ak(read_public_2b(area(new_key("p256"), attributes, scheme="ecdsa")))


def test_attestation_key_signs_by_one_scheme_with_a_hash_that_is_accepted() -> None:
    """Without a scheme of its own, or with SHA-1, whoever asks for a quote would choose."""
    key = new_key("p256")
    for scheme, digest in ((None, "sha256"), ("ecdsa", "sha1"), ("rsassa", "sha256")):
        with pytest.raises(UnfitKey):
            check_ak(
                read_public_2b(area(key, RESTRICTED_SIGNING, scheme=scheme, scheme_hash=digest))
            )


@pytest.mark.case("B42")
def test_weak_curve_is_refused() -> None:
    """A curve that is not known must end the join; once, its key was not found and its check left out."""
    key = ec.generate_private_key(ec.SECP224R1())
    with pytest.raises(Malformed):
        read_public_2b(area(key, RESTRICTED_SIGNING, scheme="ecdsa"))
    bn256 = bytearray(area(new_key("p256"), RESTRICTED_SIGNING, scheme="ecdsa"))
    at = bytes(bn256).index(b"\x00\x03\x00\x10\x00\x20")
    bn256[at + 1] = 0x10
    with pytest.raises(Malformed):
        read_public_2b(bytes(bn256))


@pytest.mark.parametrize(
    "attributes", [STORAGE & ~0x10000, STORAGE & ~0x20000, STORAGE | 0x40000, STORAGE & ~0x02]
)
def test_endorsement_key_must_keep_what_it_decrypts(attributes: int) -> None:
    """An unrestricted key decrypts for anybody, whichever TPM the attestation key is in."""
    with pytest.raises(UnfitKey):
        check_ek(read_public_2b(area(new_key("p256"), attributes, storage=True)))


@pytest.mark.case("B55")
def test_endorsement_key_cut_anywhere_is_refused() -> None:
    """Tools have printed keys that were far too short."""
    ek = SoftTpm(ek="rsa2048").ek
    for size in range(len(ek)):
        with pytest.raises(Malformed):
            read_public_2b(ek[:size])
        if size > 2:
            with pytest.raises(Malformed):
                read_public_2b((size - 2).to_bytes(2, "big") + ek[2:size])
