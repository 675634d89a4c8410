"""Anchors are data: each file is checked, a bad one is named, and the others work."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.clouds import START, Certified, Folder, certify
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder, load
from watchword.handlers.attestors.cloud_iid.manifest import Purpose
from watchword.handlers.attestors.cloud_iid.reasons import Unproven
from watchword.handlers.errors import ConfigRefused

NOW = START + timedelta(days=100)
LATER = START + timedelta(days=400)
PURPOSE: Purpose = "rsa2048"


@pytest.fixture(scope="module")
def aws() -> Certified:
    return certify("AWS", key=rsa.generate_private_key(65537, 2048))


@pytest.fixture
def folder(tmp_path: Path, aws: Certified) -> Folder:
    made = Folder(tmp_path)
    made.add(aws.certificate, provider="aws", region="eu-west-1", purpose=PURPOSE)
    return made


@pytest.mark.case("B36")
@pytest.mark.case("B14")
def test_a_bad_file_is_named_and_the_rest_load(folder: Folder, aws: Certified) -> None:
    """One certificate that cannot be read has stopped whole fleets."""
    bad = folder.add(aws.certificate, provider="aws", region="eu-west-2", purpose=PURPOSE)
    (folder.path / bad["file"]).write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n")
    gone = folder.add(aws.certificate, provider="aws", region="eu-west-3", purpose=PURPOSE)
    (folder.path / gone["file"]).unlink()

    loaded = load(folder.write())

    assert [problem.file for problem in loaded.problems] == [bad["file"], gone["file"]]
    assert set(loaded.aws) == {("eu-west-1", PURPOSE)}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"keyType": "rsa-4096"}, "its key is rsa-2048"),
        ({"purpose": "dsa"}, "a key of type rsa-2048 is not for dsa"),
        ({"notAfter": "2031-01-01T00:00:00+00:00"}, "its validity"),
        ({"purpose": "root"}, "no purpose of this provider"),
        ({"partition": "azure"}, "no partition of this provider"),
        ({"region": ""}, "a region belongs to AWS"),
        ({"region": "us.east-1"}, "not usable: region"),
        ({"region": "us-east-1\0"}, "not usable: region"),
        ({"file": "../outside.pem"}, "not usable: file"),
        ({"file": "/etc/hostname"}, "not usable: file"),
        ({"unknown": "x"}, "not usable: unknown"),
    ],
)
def test_a_file_that_is_not_what_the_manifest_says_is_left_out(
    folder: Folder, changes: dict[str, str], told: str
) -> None:
    """A DSA key in an RSA slot verifies nothing that it should, at three in the morning."""
    folder.entries.append({**folder.entries[0], **changes})

    loaded = load(folder.write())

    assert len(loaded.anchors) == 1
    assert told in loaded.problems[0].problem


def test_an_elliptic_key_is_not_for_an_rsa_slot(folder: Folder) -> None:
    """The kind of key is read from the certificate, not believed."""
    curve = certify("AWS", key=ec.generate_private_key(ec.SECP384R1()))
    folder.add(curve.certificate, provider="aws", region="eu-west-2", purpose=PURPOSE)
    assert "ec-secp384r1" in load(folder.write()).problems[0].problem


def test_a_region_has_one_partition(folder: Folder, aws: Certified) -> None:
    """Else an account number of one partition could pass for the other's."""
    folder.add(
        aws.certificate, provider="aws", partition="aws-cn", region="eu-west-1", purpose=PURPOSE
    )
    assert "another partition" in load(folder.write()).problems[0].problem


@pytest.mark.case("B02")
@pytest.mark.parametrize("expired", ["refuse", "accept"])
def test_what_an_expired_anchor_means_is_one_setting(folder: Folder, expired: str) -> None:
    """Pinned certificates have run out in the field, in twelve regions at once."""
    anchors = AnchorFolder(folder.write(), expired="accept" if expired == "accept" else "refuse")
    held = anchors.current.aws["eu-west-1", PURPOSE]

    assert anchors.in_force(held, NOW) == list(held)
    assert anchors.status(LATER)[0].days_left == -35
    if expired == "accept":
        assert anchors.in_force(held, LATER) == list(held)
        return
    with pytest.raises(Unproven, match="anchor-expired"):
        anchors.in_force(held, LATER)


@pytest.mark.case("B03")
def test_a_new_region_works_after_a_reload(folder: Folder, aws: Certified) -> None:
    """Regions must not wait for a release."""
    anchors = AnchorFolder(folder.write())
    assert ("ap-southeast-7", PURPOSE) not in anchors.current.aws

    folder.add(aws.certificate, provider="aws", region="ap-southeast-7", purpose=PURPOSE)
    folder.write()
    anchors.reload()

    assert ("ap-southeast-7", PURPOSE) in anchors.current.aws


def test_a_manifest_that_cannot_be_read_changes_nothing(folder: Folder) -> None:
    """A half-written file at a reload must not lock every cloud out."""
    anchors = AnchorFolder(folder.write())
    before = anchors.current
    (folder.path / "anchors.json").write_text('{"anchors": [')
    with pytest.raises(ConfigRefused):
        anchors.reload()
    assert anchors.current is before


def test_the_last_use_is_told(folder: Folder) -> None:
    """An anchor that verified nothing for a year can go."""
    anchors = AnchorFolder(folder.write())
    anchors.used(anchors.current.anchors[0], NOW)
    assert anchors.status(NOW)[0].last_used == NOW


def test_keys_of_a_key_set_are_checked_one_by_one(folder: Folder) -> None:
    """A private key, a curve or two keys of one name: left out, and named."""
    good = {"kty": "RSA", "kid": "good", "e": "AQAB", "n": "1" * 342}
    listed = [
        good,
        {**good, "kid": "private", "d": "AQAB"},
        {**good, "kid": "small", "n": "1" * 170},
        {**good, "kid": "exponent", "e": "Aw"},
        {"kty": "EC", "kid": "curve"},
        {**good, "kid": "twin"},
        {**good, "kid": "twin"},
        {**good, "kid": ""},
        "no object",
    ]
    folder.add_keys(json.dumps({"keys": listed}).encode())

    loaded = load(folder.write())

    assert loaded.keys.keys() == {"good"}
    assert len(loaded.problems) == 7
