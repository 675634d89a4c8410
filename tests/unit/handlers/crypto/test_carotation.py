"""The node CA is replaced while its certificates are in use."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.crypto import DAY, NOW, TRUST_DOMAIN, order
from watchword.handlers.crypto.camanifest import read_ca_manifest
from watchword.handlers.crypto.carotation import (
    activate_ca,
    ca_rows,
    file_authority,
    issuing_authorities,
    prepare_ca,
    retire_ca,
)
from watchword.handlers.crypto.issuers import chain_of
from watchword.handlers.crypto.keyfiles import create_keys, load_authority, load_worker_keys
from watchword.handlers.errors import ConfigRefused, Conflict, NotFound

LIFE = 7 * DAY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    create_keys(made, TRUST_DOMAIN, NOW)
    return made


def active(folder: Path) -> str:
    return read_ca_manifest(folder).active.kid


def activated(folder: Path) -> tuple[str, str]:
    prepare_ca(folder, TRUST_DOMAIN, now=NOW)
    return activate_ca(folder, file_authority(folder), now=NOW, certificate_life=LIFE)


def test_both_cas_are_trusted_and_only_the_active_one_issues(folder: Path) -> None:
    """Peers must know a CA before its first certificate, and as long as its last one is valid."""
    first = load_worker_keys(folder)
    new = prepare_ca(folder, TRUST_DOMAIN, now=NOW)
    told = load_worker_keys(folder)
    assert told.version > first.version
    assert len(told.authorities) == 2
    assert load_authority(folder).kid != new

    assert activate_ca(folder, file_authority(folder), now=NOW, certificate_life=LIFE)[0] == new
    keys = load_worker_keys(folder)
    assert load_authority(folder).kid == new
    assert set(keys.authorities) == set(told.authorities)
    assert keys.authorities[0] == keys.ca_certificates[-1] != first.ca_certificates[-1]


def test_a_retired_ca_signs_crls_and_its_certificates_lead_to_it(folder: Path) -> None:
    (before,) = load_authority(folder).issue([order()])
    new, old = activated(folder)
    authorities = issuing_authorities(folder, file_authority(folder))
    (after,) = authorities[0].issue([order()])

    assert [one.kid for one in authorities] == [new, old]
    known = tuple(der for one in authorities for der in one.chain)
    for issued, by in ((before, authorities[1]), (after, authorities[0])):
        assert chain_of(issued.der, known) == by.chain
        issuer = x509.load_der_x509_certificate(by.chain[0])
        x509.load_der_x509_certificate(issued.der).verify_directly_issued_by(issuer)
    lists = [one.revocation_list([], now=NOW, next_update=NOW + DAY) for one in authorities]
    assert len({x509.load_der_x509_crl(der).issuer for der in lists}) == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param(
            lambda f: activate_ca(f, file_authority(f), now=NOW, certificate_life=LIFE),
            "no CA is prepared",
            id="activated unprepared",
        ),
        pytest.param(
            lambda f: retire_ca(f, active(f), now=NOW, valid=0), "active", id="active retired"
        ),
        pytest.param(
            lambda f: retire_ca(f, active(f), now=NOW, valid=0, is_compromised=True),
            "active",
            id="active retired, compromised",
        ),
        pytest.param(
            lambda f: retire_ca(f, "ca-0", now=NOW, valid=0), "no CA ca-0", id="unknown retired"
        ),
    ],
)
def test_the_wrong_order_is_said_and_changes_nothing(
    folder: Path, wrong: Callable[[Path], object], said: str
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    with pytest.raises((Conflict, NotFound), match=said):
        wrong(folder)

    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("days", "valid", "said"),
    [(1, 0, "may be needed until"), (1, None, "may be needed until"), (8, 3, "3 certificates")],
)
def test_a_ca_with_valid_certificates_stays_unless_somebody_else_has_it(
    folder: Path, days: int, valid: int | None, said: str
) -> None:
    """A node that has done nothing wrong must not be nobody's all of a sudden."""
    _, old = activated(folder)
    now = NOW + timedelta(days=days)
    with pytest.raises(Conflict, match=said):
        retire_ca(folder, old, now=now, valid=valid)
    assert {row.kid for row in ca_rows(folder)} >= {old}

    retire_ca(folder, old, now=now, valid=valid, is_compromised=True)
    assert old not in {row.kid for row in ca_rows(folder)}
    assert not (folder / "ca.key.pem").exists()
    assert len(load_worker_keys(folder).authorities) == 1


def test_a_retired_ca_goes_when_its_certificates_have_ended(folder: Path) -> None:
    _, old = activated(folder)

    retire_ca(folder, old, now=NOW + LIFE, valid=0)

    assert [row.state for row in ca_rows(folder)] == ["active"]


@pytest.mark.parametrize("content", [b"junk", b"{}", b'{"authorities": []}', b"[" * 5000])
def test_a_damaged_manifest_is_named(folder: Path, content: bytes) -> None:
    """And not taken for the one CA from before: that one may have been retired for a reason."""
    activated(folder)
    (folder / "ca.json").write_bytes(content)

    for read in (load_authority, load_worker_keys):
        with pytest.raises(ConfigRefused, match=r"ca\.json"):
            read(folder)


def test_two_active_cas_are_none(folder: Path) -> None:
    activated(folder)
    path = folder / "ca.json"
    path.write_text(path.read_text().replace('"retired"', '"active"'))

    with pytest.raises(ConfigRefused, match="not one active CA"):
        load_authority(folder)
