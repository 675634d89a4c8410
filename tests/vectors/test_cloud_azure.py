"""Attested documents of Azure, and those of people who tried."""

import json
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.clouds import Folder
from tests.support.vectors import vector
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.azure import prove
from watchword.handlers.attestors.cloud_iid.config import AzureConfig
from watchword.handlers.attestors.cloud_iid.document import Identity
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

pytestmark = pytest.mark.vectors

GENUINE = Identity(
    "azure",
    "8a205152-b25a-417f-a676-80465535a6c9",
    "b1310a36-d400-46f6-82cb-6217df846586",
    None,
)


@pytest.fixture(scope="module")
def anchors(tmp_path_factory: pytest.TempPathFactory) -> AnchorFolder:
    """Give Microsoft's and DigiCert's roots and all issuers that another project keeps."""
    folder = Folder(tmp_path_factory.mktemp("anchors"))
    for name in ("azure-certs/roots", "mpl-2.0/azure-certs"):
        for path in sorted(vector(name).glob("*.pem")):
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            purpose = "root" if certificate.subject == certificate.issuer else "intermediate"
            folder.add(certificate, provider="azure", purpose=purpose)
    return AnchorFolder(folder.write())


def genuine() -> bytes:
    (shown,) = json.loads(vector("mpl-2.0/azure-imds/azure_signature_good.json").read_text())
    return b64decode(shown["document"])


def armoured(name: str) -> bytes:
    lines = vector(name).read_text().splitlines()
    return b64decode("".join(line for line in lines if not line.startswith("-----")))


def proved(data: bytes, anchors: AnchorFolder, now: str, config: AzureConfig) -> Identity:
    evidence = CloudEvidence.decode(CloudEvidence("azure", "attested", b"", data).encode())
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    return prove(evidence, anchors, config, b"c" * 32, at)


@pytest.mark.parametrize("now", ["2026-07-28T13:24:00", "2026-07-28T19:23:59"])
def test_what_azure_gave_is_taken_in_its_hours(anchors: AnchorFolder, now: str) -> None:
    """A chain of 2026, whose root was new to everybody who had pinned the old ones."""
    assert proved(genuine(), anchors, now, AzureConfig()) == GENUINE


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ("2026-07-28T19:26:00", "stale"),
        ("2026-07-28T13:21:59", "not-yet"),
        ("2026-12-01T00:00:00", "chain"),
        ("2026-05-01T00:00:00", "chain"),
    ],
)
def test_outside_of_its_hours_it_is_refused(anchors: AnchorFolder, now: str, reason: str) -> None:
    """Certificate and document have each their own times."""
    with pytest.raises(Unproven, match=reason):
        proved(genuine(), anchors, now, AzureConfig())


def test_without_the_issuer_in_the_folder_nothing_is_fetched(tmp_path: Path) -> None:
    """The certificate says where its issuer is to be had; that address is a stranger's."""
    folder = Folder(tmp_path)
    path = vector("azure-certs/roots").glob("*DigiCert-Global-Root-G2*.pem")
    folder.add(
        x509.load_pem_x509_certificate(next(iter(sorted(path))).read_bytes()),
        provider="azure",
        purpose="root",
    )
    with pytest.raises(Unproven, match="chain"):
        proved(genuine(), AnchorFolder(folder.write()), "2026-07-28T14:00:00", AzureConfig())


def test_the_nonce_counts_only_where_the_policy_asks(anchors: AnchorFolder) -> None:
    """This real document has a nonce that nobody asked for: the service fills it in."""
    with pytest.raises(Unproven, match="nonce"):
        proved(genuine(), anchors, "2026-07-28T14:00:00", AzureConfig(nonce=True))


@pytest.mark.parametrize("now", ["2018-11-20T22:08:00", "2026-11-29T00:00:00"])
def test_the_sample_of_the_vendors_documentation_is_refused(
    anchors: AnchorFolder, now: str
) -> None:
    """Self-signed, RSA-1024, MD5, with the right name: who checks only name and signature takes it."""
    sample = json.loads(vector("azure-imds/microsoft-docs-2018/response.json").read_text())
    with pytest.raises(Unproven, match="chain"):
        proved(b64decode(sample["signature"]), anchors, now, AzureConfig())


@pytest.mark.parametrize(
    ("name", "now", "reason"),
    [
        ("azure_message_bad", "2019-12-13T01:00:00", "cms-malformed"),
        ("azure_signature_bad", "2019-12-13T01:00:00", "chain"),
        ("azure_wrong_subject.pkcs7", "2020-11-15T13:00:00", "name"),
    ],
)
def test_another_projects_bad_ones_are_refused(
    anchors: AnchorFolder, name: str, now: str, reason: str
) -> None:
    """`metadata.azure.org` is a name that anybody may have."""
    with pytest.raises(Unproven, match=reason):
        proved(armoured(f"mpl-2.0/azure-imds/{name}"), anchors, now, AzureConfig())


def test_every_anchor_of_the_vectors_loads(anchors: AnchorFolder) -> None:
    """RSA and ECC roots alike."""
    assert anchors.current.problems == ()
    kinds = {anchor.entry.key_type for anchor in anchors.current.anchors}
    assert {"rsa-2048", "rsa-4096", "ec-secp384r1"} <= kinds
