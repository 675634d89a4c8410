"""Endorsement certificates of real TPMs, most of which `cryptography` cannot parse."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.tpm import recorded_area
from tests.support.vectors import vector
from watchword.handlers.attestors.tpm.certificates import in_file, read_certificate, unwrap
from watchword.handlers.attestors.tpm.endorsement import (
    Anchors,
    NoChain,
    check_endorsement,
    load_anchors,
)
from watchword.handlers.attestors.tpm.names import ek_sha256
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import read_public_2b

pytestmark = pytest.mark.vectors

NOW = datetime(2026, 11, 29, 22, tzinfo=UTC)
REAL = [
    "gce-pca-tpm-rsa-enc",
    "gce-uca-tpm-ecc-enc",
    "gce-uca-tpm-rsa-enc",
    "intel-ptt-spt-rsa",
    "nuvoton-npct6xx-rsa",
    "nuvoton-npct75x-sr630-rsa",
    "st-ecc-p256",
    "st-rsa2048-trailing-padding",
]


@pytest.fixture(scope="module")
def anchors() -> Anchors:
    """Give the CAs of all vendors."""
    return load_anchors(vector("tpm-ek-ca"))


def _shown(name: str) -> tuple[bytes, Any]:
    """Return a certificate, and in place of a public area the key that it certifies."""
    data = (vector("tpm-ek") / f"{name}.der").read_bytes()
    return data, SimpleNamespace(key=read_certificate(unwrap(data)).key)


def _chain(name: str) -> list[bytes]:
    return list(in_file((vector("tpm-ek") / f"{name}.chain.pem").read_bytes()))


@pytest.mark.parametrize("name", REAL)
def test_real_certificates_lead_to_their_vendors(name: str, anchors: Anchors) -> None:
    """Five of seven kinds of chips would be shut out by a strict parser."""
    data, ek = _shown(name)
    check_endorsement(data, [], ek, anchors, NOW)
    check_endorsement(data, _chain(name), ek, anchors, NOW)


@pytest.mark.parametrize("name", REAL)
def test_intermediates_may_come_as_evidence(name: str) -> None:
    """An operator who trusts a vendor's root need not collect its intermediates."""
    data, ek = _shown(name)
    *between, top = _chain(name)
    check_endorsement(data, between, ek, Anchors.of([read_certificate(top)]), NOW)
    if between:
        with pytest.raises(NoChain):
            check_endorsement(data, [], ek, Anchors.of([read_certificate(top)]), NOW)


@pytest.mark.parametrize("name", REAL)
def test_another_vendors_root_does_not_do(name: str, anchors: Anchors) -> None:
    """An operator who has bought chips of one vendor trusts no other."""
    data, ek = _shown(name)
    others = Anchors.of(
        [
            authority
            for same in anchors.by_subject.values()
            for authority in same
            if not any(authority.subject == read_certificate(c).subject for c in _chain(name))
        ]
    )
    with pytest.raises(NoChain):
        check_endorsement(data, _chain(name), ek, others, NOW)


@pytest.mark.parametrize("name", REAL)
def test_another_key_is_refused(name: str, anchors: Anchors) -> None:
    """A genuine certificate copied from another machine certifies nothing of this one."""
    data, _ = _shown(name)
    with pytest.raises(NoChain):
        check_endorsement(
            data, [], read_public_2b(recorded_area("swtpm/tpm-a", "ek")), anchors, NOW
        )


@pytest.mark.parametrize(
    ("name", "stride"), [(name, 29) for name in REAL[:3]] + [(name, 5) for name in REAL[3:]]
)
def test_every_changed_byte_is_refused(name: str, stride: int, anchors: Anchors) -> None:
    """A tolerant parser must not be tolerant of what was signed, nor of what is around it."""
    data, ek = _shown(name)
    for at in [*range(0, len(data), stride), *range(16), *range(len(data) - 90, len(data), 7)]:
        for bit in (0x01, 0x80):
            changed = data[:at] + bytes((data[at] ^ bit,)) + data[at + 1 :]
            with pytest.raises(Malformed):
                check_endorsement(changed, [], ek, anchors, NOW)


def test_every_cut_is_refused(anchors: Anchors) -> None:
    """An NV index that was read in part is no certificate."""
    data, ek = _shown("nuvoton-npct75x-sr630-rsa")
    for size in range(len(data)):
        with pytest.raises(Malformed):
            check_endorsement(data[:size], [], ek, anchors, NOW)


def test_signing_key_of_a_vendor_is_no_endorsement_key(anchors: Anchors) -> None:
    """Google certifies attestation keys with the same purpose; nobody can encrypt to them."""
    data, ek = _shown("gce-uca-tpm-rsa-sign")
    with pytest.raises(NoChain, match="no key to encrypt to"):
        check_endorsement(data, [], ek, anchors, NOW)


def test_platform_certificate_is_no_endorsement() -> None:
    """It certifies the same machine, and another statement."""
    folder = vector("swtpm/tpm-a")
    data = (folder / "platform.crt.der").read_bytes()
    with pytest.raises(Malformed):
        check_endorsement(data, [], _key(data), _swtpm(), NOW)


def test_software_tpm_is_a_tpm_only_if_its_root_is_trusted(anchors: Anchors) -> None:
    """Its certificates look like a vendor's; the anchors are the difference."""
    folder = vector("swtpm/tpm-a")
    data = (folder / "ek-rsa2048.crt.der").read_bytes()
    ek = read_public_2b(recorded_area("swtpm/tpm-a", "ek"))
    [issuer] = in_file((folder / "issuer-ca.pem").read_bytes())

    check_endorsement(data, [issuer], ek, _swtpm(), NOW)
    with pytest.raises(NoChain):
        check_endorsement(data, [issuer], ek, anchors, NOW)


def test_every_ek_has_one_hash() -> None:
    """It is what an operator lists, and what is bound and banned."""
    ek = read_public_2b(recorded_area("swtpm/tpm-a", "ek"))
    assert ek_sha256(ek) == ek.name[2:]


def _key(data: bytes) -> Any:  # noqa: ANN401 - in place of a public area
    return SimpleNamespace(key=read_certificate(data).key)


def _swtpm() -> Anchors:
    [root] = in_file((vector("swtpm/tpm-a") / "root-ca.pem").read_bytes())
    return Anchors.of([read_certificate(root)])
