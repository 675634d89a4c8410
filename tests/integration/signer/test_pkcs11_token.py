"""A CA key in a hardware module, here SoftHSM's."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.crypto import TRUST_DOMAIN, order
from tests.support.softhsm import TOKEN, SoftHsm, made, needs_softhsm
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.errors import ConfigRefused, Conflict, SignerUnavailable

if TYPE_CHECKING:
    from watchword.streams.signer.pkcs11_token import Token, TokenKey

NOW = datetime.now(UTC).replace(microsecond=0)
LABEL = "node-ca"


@pytest.fixture
def hsm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SoftHsm:
    found = made(tmp_path / "hsm")
    monkeypatch.setenv("SOFTHSM2_CONF", str(found.conf))
    return found


@pytest.fixture
def token(hsm: SoftHsm) -> Generator["Token"]:
    from pkcs11 import unload  # noqa: PLC0415 - it is not everywhere

    from watchword.streams.signer.pkcs11_token import Token  # noqa: PLC0415 - the same

    opened = Token(hsm.module, TOKEN, hsm.pin_file)
    yield opened
    opened.close()
    # The module reads its configuration once: the next test's is another.
    unload(str(hsm.module))


@pytest.fixture
def key(token: "Token") -> "TokenKey":
    return token.make_key(LABEL)


def test_certificates_and_crls_of_a_key_in_a_module_verify(key: "TokenKey") -> None:
    """What relying parties check is the same whoever holds the key."""
    _, certificate = create_ca(TRUST_DOMAIN, now=NOW, key=key)
    certificate.verify_directly_issued_by(certificate)
    authority = Authority(key, [certificate], trust_domain=TRUST_DOMAIN)

    (issued,) = authority.issue([order(not_before=NOW, not_after=NOW + timedelta(days=1))])
    crl = x509.load_der_x509_crl(
        authority.revocation_list([], now=NOW, next_update=NOW + timedelta(days=1))
    )

    x509.load_der_x509_certificate(issued.der).verify_directly_issued_by(certificate)
    assert crl.is_signature_valid(key.public_key())
    assert authority.is_remote


def test_the_key_is_found_again_and_never_leaves(token: "Token", key: "TokenKey") -> None:
    found = token.key(LABEL)

    assert found.public_key() == key.public_key()
    found.public_key().verify(found.sign(b"x", ec.ECDSA(SHA256())), b"x", ec.ECDSA(SHA256()))
    with pytest.raises(UnsupportedAlgorithm):
        found.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(UnsupportedAlgorithm):
        found.private_numbers()


def test_a_label_that_is_taken_makes_no_second_key(token: "Token", key: "TokenKey") -> None:
    """Two keys of one name: nobody could say which one signs."""
    with pytest.raises(Conflict):
        token.make_key(LABEL)

    assert token.key(LABEL).public_key() == key.public_key()


def test_a_module_that_goes_away_is_waited_for(hsm: SoftHsm, key: "TokenKey") -> None:
    """A cable or a restart of the module is no reason to lose a join."""
    hsm.unplug()
    for _ in range(2):
        with pytest.raises(SignerUnavailable):
            key.sign(b"x", ec.ECDSA(SHA256()))
        with pytest.raises(SignerUnavailable):
            key.probe()
    hsm.plug_in()

    key.probe()
    key.public_key().verify(key.sign(b"x", ec.ECDSA(SHA256())), b"x", ec.ECDSA(SHA256()))


def test_a_wrong_pin_is_said_and_tried_once(hsm: SoftHsm, token: "Token") -> None:
    """A module locks itself after a few tries, and then an administrator has to come."""
    hsm.pin_file.write_text("000000")
    for _ in range(5):
        with pytest.raises(ConfigRefused, match="PinIncorrect") as caught:
            token.key(LABEL)
        assert "000000" not in str(caught.value)

    hsm.pin_file.write_text("271828")
    with pytest.raises(ConfigRefused, match="before a restart"):
        token.key(LABEL)


def test_a_pin_that_others_can_read_is_refused(hsm: SoftHsm, token: "Token") -> None:
    hsm.pin_file.chmod(0o644)

    with pytest.raises(ConfigRefused, match="chmod 600"):
        token.key(LABEL)


def test_a_module_that_is_not_there_is_waited_for(hsm: SoftHsm) -> None:
    from watchword.streams.signer.pkcs11_token import Token  # noqa: PLC0415 - as above

    with pytest.raises(SignerUnavailable):
        Token(hsm.folder / "missing.so", TOKEN, hsm.pin_file).key(LABEL)


def test_raw_signatures_become_der() -> None:
    """A leading bit that is set makes an integer negative in DER, unless a zero stands before it."""
    needs_softhsm()
    from watchword.streams.signer.pkcs11_token import der_of  # noqa: PLC0415 - as above

    raw = b"\x80" + bytes(30) + b"\x01" + bytes(31) + b"\x02"

    assert der_of(raw, 256).hex() == "3026022100" + raw[:32].hex() + "020102"
    with pytest.raises(SignerUnavailable):
        der_of(raw[:-1], 256)
