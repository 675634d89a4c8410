"""Documents that the right key signed and that are still no identity, as if AWS had been talked into it."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.clouds import START, Certified, Cms, Folder, certify
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.aws import prove
from watchword.handlers.attestors.cloud_iid.config import AwsConfig
from watchword.handlers.attestors.cloud_iid.document import Identity
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

NOW = START + timedelta(days=10)
DOCUMENT: dict[str, Any] = {
    "accountId": "123456789012",
    "availabilityZone": "cn-north-1a",
    "instanceId": "i-0123456789abcdef0",
    "pendingTime": "2026-01-11T00:00:00Z",
    "region": "cn-north-1",
}


@pytest.fixture(scope="module")
def aws() -> Certified:
    return certify("AWS", key=rsa.generate_private_key(65537, 2048))


@pytest.fixture
def anchors(tmp_path: Path, aws: Certified) -> AnchorFolder:
    folder = Folder(tmp_path)
    folder.add(
        aws.certificate,
        provider="aws",
        partition="aws-cn",
        region="cn-north-1",
        purpose="rsa2048",
    )
    return AnchorFolder(folder.write())


def proved(content: bytes, aws: Certified, anchors: AnchorFolder, **cms: Any) -> Identity:  # noqa: ANN401 - fields of `Cms`
    evidence = CloudEvidence("aws", "rsa2048", b"", Cms(content, aws, **cms).make())
    return prove(evidence, anchors, AwsConfig(), NOW)


def test_an_account_of_another_partition_is_another_account(
    aws: Certified, anchors: AnchorFolder
) -> None:
    """Account numbers are given out by each partition for itself."""
    found = proved(json.dumps(DOCUMENT).encode(), aws, anchors)
    assert found == Identity("aws", "aws-cn:123456789012", "i-0123456789abcdef0", "cn-north-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("region", "cn-north-1\0"),
        ("region", "cn.north-1"),
        ("region", "cn-north-1\n"),
        ("region", "CN-NORTH-1"),
        ("region", "cn-north-\u0967"),
        ("region", "cn-north-2"),
        ("region", ""),
        ("region", None),
        ("accountId", "12345678901"),
        ("accountId", "\uff11" * 12),
        ("accountId", 123456789012),
        ("instanceId", "i-0123456789ABCDEF0"),
        ("instanceId", "i-0123456789abcdef"),
        ("instanceId", ["i-0123456789abcdef0"]),
        ("availabilityZone", "eu-west-1a"),
        ("pendingTime", "2026-01-11T00:00:00+00:00"),
        ("pendingTime", "2026-13-11T00:00:00Z"),
        ("pendingTime", 1736553600),
    ],
)
def test_a_member_of_another_grammar_is_no_identity(
    aws: Certified, anchors: AnchorFolder, name: str, value: object
) -> None:
    """Names with dots and NULs have found their way into paths and hosts elsewhere."""
    with pytest.raises(Unproven, match="document"):
        proved(json.dumps({**DOCUMENT, name: value}).encode(), aws, anchors)


TEXT = json.dumps(DOCUMENT)


@pytest.mark.parametrize(
    "content",
    [
        TEXT.replace("{", '{"accountId": "999999999999", ', 1).encode(),
        TEXT.replace("}", ', "extra": {"a": 1, "a": 2}}').encode(),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-32-le"),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("}", ', "extra": NaN}').encode(),
        TEXT.encode() + b"\0",
        TEXT.encode() + TEXT.encode(),
        b"[" + TEXT.encode() + b"]",
        b"[" * 10000,
        b'"' + b"a" * 17000 + b'"',
        b"\xff",
    ],
)
def test_json_that_parsers_disagree_about_is_no_document(
    aws: Certified, anchors: AnchorFolder, content: bytes
) -> None:
    """Of a member that is there twice, one parser takes the first and another the last."""
    with pytest.raises(Unproven, match="document"):
        proved(content, aws, anchors)


def test_signed_attributes_are_asked_for(aws: Certified, anchors: AnchorFolder) -> None:
    """AWS always sends them; without them a signature over something else could be re-used."""
    with pytest.raises(Unproven, match="cms-attributes"):
        proved(TEXT.encode(), aws, anchors, attributes=False)


def test_a_certificate_that_comes_along_does_not_count(
    aws: Certified, anchors: AnchorFolder
) -> None:
    """A stranger signs as AWS by name and brings a certificate with it."""
    stranger = certify(
        "AWS",
        key=rsa.generate_private_key(65537, 2048),
        serial=aws.certificate.serial_number,
    )
    with pytest.raises(Unproven, match="signature"):
        proved(TEXT.encode(), stranger, anchors, certificates=(stranger.der,))
    other = certify("AWS", key=stranger.key)
    with pytest.raises(Unproven, match="cms-certificate"):
        proved(TEXT.encode(), other, anchors, certificates=(other.der,))
