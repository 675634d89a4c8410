"""The CRL: what relying parties check certificates against."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.crypto import DAY, NOW, TRUST_DOMAIN
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.revocation_lists import Revoked
from watchword.handlers.errors import ConfigRefused


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()])
def test_crl_is_signed_by_the_authority_and_holds_what_is_revoked(curve: ec.EllipticCurve) -> None:
    """Whoever checks a peer by it has only the CA's certificate to go by."""
    key, certificate = create_ca(TRUST_DOMAIN, now=NOW, key=ec.generate_private_key(curve))
    authority = Authority(key, [certificate], trust_domain=TRUST_DOMAIN)
    serials = [bytes([nth] * 16) for nth in (1, 255)]
    der = authority.revocation_list(
        [Revoked(serial, NOW - DAY, "a test") for serial in serials],
        now=NOW,
        next_update=NOW + DAY,
    )

    crl = x509.load_der_x509_crl(der)
    assert crl.is_signature_valid(certificate.public_key())  # type: ignore[arg-type]  # ECDSA
    assert crl.issuer == certificate.subject
    assert (crl.last_update_utc, crl.next_update_utc) == (NOW, NOW + DAY)
    assert {entry.serial_number for entry in crl} == {int.from_bytes(s, "big") for s in serials}
    number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    later = authority.revocation_list([], now=NOW + timedelta(seconds=1), next_update=NOW + DAY)
    newer = x509.load_der_x509_crl(later)
    assert newer.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number > number


def test_crl_that_no_record_could_carry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that cannot be published must be said aloud, not be left at the last one."""
    monkeypatch.setattr("watchword.handlers.crypto.authority.MAX_BYTES", 1000)
    key, certificate = create_ca(TRUST_DOMAIN, now=NOW)
    authority = Authority(key, [certificate], trust_domain=TRUST_DOMAIN)
    many = [Revoked(nth.to_bytes(16, "big"), NOW, "") for nth in range(1, 50)]

    with pytest.raises(ConfigRefused, match="too large"):
        authority.revocation_list(many, now=NOW, next_update=NOW + DAY)
