"""Which endorsement certificates are taken, and in which wrappings."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from structlog.testing import capture_logs

from tests.support.tpm import UNKNOWN, Maker, TpmKey, new_key
from watchword.handlers.attestors.tpm.certificates import read_certificate, unwrap
from watchword.handlers.attestors.tpm.endorsement import (
    Anchors,
    NoChain,
    check_endorsement,
    load_anchors,
)
from watchword.handlers.attestors.tpm.reader import Malformed

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def maker() -> Maker:
    """Give a vendor."""
    return Maker()


@pytest.fixture(scope="module")
def key() -> TpmKey:
    """Give an endorsement key."""
    return new_key("p256")


def _ek(key: TpmKey) -> Any:  # noqa: ANN401 - in place of a public area
    return SimpleNamespace(key=key.public_key())


def _check(maker: Maker, key: TpmKey, shown: bytes, at: datetime = NOW) -> None:
    root = Anchors.of([read_certificate(maker.root)])
    check_endorsement(shown, [maker.issuer], _ek(key), root, at)


@pytest.mark.case("B39")
@pytest.mark.parametrize("kind", ["rsa2048", "rsa3072", "p256", "p384"])
def test_every_kind_of_key_with_intermediates_as_evidence(maker: Maker, kind: str) -> None:
    """Chips have had ECC and larger RSA keys for years, and keep their intermediates themselves."""
    key = new_key(kind)
    _check(maker, key, maker.certify(key))


@pytest.mark.case("B35")
@pytest.mark.parametrize("fill", [b"", b"\xff" * 100, b"\0" * 100])
@pytest.mark.parametrize("prefixed", [False, True])
def test_wrappings_of_an_nv_index(maker: Maker, key: TpmKey, fill: bytes, prefixed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """An index has a fixed size, and some vendors write a header before the certificate."""
    der = maker.certify(key)
    header = b"\x10\x01\x00" + len(der).to_bytes(2, "big") if prefixed else b""
    _check(maker, key, header + der + fill)


@pytest.mark.case("B35")
@pytest.mark.parametrize("size", [0, 1, -1, 60000])
def test_length_of_the_header_must_be_the_certificates(
    maker: Maker, key: TpmKey, size: int
) -> None:
    """A length beyond the blob is refused without reading past the end."""
    der = maker.certify(key)
    length = (size if size >= 0 else len(der) - 1).to_bytes(2, "big")
    with pytest.raises(Malformed):
        unwrap(b"\x10\x01\x00" + length + der)


def test_other_bytes_behind_the_certificate_are_refused(maker: Maker, key: TpmKey) -> None:
    """Padding is one byte over and over; anything else is somebody's idea."""
    der = maker.certify(key)
    for rest in (b"\xff\x00", b"\x00\xff", b"\x01", der):
        with pytest.raises(Malformed):
            unwrap(der + rest)


@pytest.mark.case("B38")
def test_self_signed_is_refused(maker: Maker, key: TpmKey) -> None:
    """Whoever can make a key can make a certificate that says it is a TPM's."""
    with pytest.raises(NoChain):
        _check(maker, key, maker.certify(key, self_signed=True))


@pytest.mark.case("B36")
def test_one_bad_file_among_the_anchors_spoils_nothing(
    tmp_path: Path, maker: Maker, key: TpmKey
) -> None:
    """One vendor's odd root must not shut out the machines of all the others."""
    (tmp_path / "a-bad.pem").write_bytes(
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    (tmp_path / "b-junk.der").write_bytes(b"\x30\x82\xff\xff")
    (tmp_path / "c-leaf.der").write_bytes(maker.certify(key))
    (tmp_path / "d-root.der").write_bytes(maker.root)
    with capture_logs() as logs:
        anchors = load_anchors(tmp_path)

    check_endorsement(maker.certify(key), [maker.issuer], _ek(key), anchors, NOW)
    assert [log["file"] for log in logs] == ["a-bad.pem", "b-junk.der", "c-leaf.der"]


def test_no_anchors_take_nobody(tmp_path: Path, maker: Maker, key: TpmKey) -> None:
    """An empty folder is an operator's mistake, never an open door."""
    with pytest.raises(NoChain):
        check_endorsement(
            maker.certify(key), [maker.issuer, maker.root], _ek(key), load_anchors(tmp_path), NOW
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"critical": UNKNOWN},
        {"purpose": ExtendedKeyUsageOID.SERVER_AUTH},
        {"authority": True},
        {"critical": x509.NameConstraints([x509.DNSName("example.org")], None)},
    ],
)
def test_what_is_no_endorsement_certificate(
    maker: Maker, key: TpmKey, changes: dict[str, Any]
) -> None:
    """Unknown critical extensions are refused however tolerant the parser; so are other purposes and CAs."""
    with pytest.raises(NoChain):
        _check(maker, key, maker.certify(key, **changes))


def test_certificate_has_its_time(maker: Maker, key: TpmKey) -> None:
    """Neither before nor after, by the database's clock."""
    shown = maker.certify(key)
    _check(maker, key, shown)
    for days in (-31, 366):
        with pytest.raises(NoChain):
            _check(maker, key, shown, NOW + timedelta(days=days))


def test_path_is_bounded_and_complete(maker: Maker, key: TpmKey) -> None:
    """Neither more intermediates than a chain has, nor a step left out."""
    anchors = Anchors.of([read_certificate(maker.root)])
    with pytest.raises(NoChain):
        check_endorsement(maker.certify(key), [maker.issuer] * 5, _ek(key), anchors, NOW)
    with pytest.raises(NoChain):
        check_endorsement(maker.certify(key), [], _ek(key), anchors, NOW)
