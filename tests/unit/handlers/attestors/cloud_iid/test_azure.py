"""Attested documents of clouds made for the purpose: chains, names, and what is written in them."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.clouds import START, Certified, Cms, Folder, certify
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.azure import prove
from watchword.handlers.attestors.cloud_iid.binding import nonce_for
from watchword.handlers.attestors.cloud_iid.config import AzureConfig
from watchword.handlers.attestors.cloud_iid.document import Identity
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

NOW = START + timedelta(hours=1)
CSR = b"c" * 32
NAME = "eastus.metadata.azure.com"
DOCUMENT: dict[str, Any] = {
    "nonce": nonce_for(CSR),
    "subscriptionId": "8A205152-b25a-417f-a676-80465535a6c9",
    "timeStamp": {"createdOn": "01/01/26 00:30:00 -0000", "expiresOn": "01/01/26 06:30:00 -0000"},
    "vmId": "b1310a36-d400-46f6-82cb-6217df846586",
}
CONTENT = json.dumps(DOCUMENT).encode()


@pytest.fixture(scope="module")
def root() -> Certified:
    return certify("Root", ca=True, key=ec.generate_private_key(ec.SECP384R1()))


@pytest.fixture
def folder(tmp_path: Path, root: Certified) -> Folder:
    made = Folder(tmp_path)
    made.add(root.certificate, provider="azure", purpose="root")
    return made


def signer(issuer: Certified, *names: str, **changes: Any) -> Certified:  # noqa: ANN401 - of `certify`
    return certify(
        changes.pop("common_name", "signer"), issuer=issuer, dns=names or (NAME,), **changes
    )


def proved(
    folder: Folder,
    by: Certified,
    *,
    content: bytes = CONTENT,
    extra: tuple[bytes, ...] = (),
    config: AzureConfig | None = None,
    csr: bytes = CSR,
) -> Identity:
    data = Cms(content, by, attributes=False, certificates=(*extra, by.der)).make()
    evidence = CloudEvidence("azure", "attested", b"", data)
    return prove(evidence, AnchorFolder(folder.write()), config or AzureConfig(), csr, NOW)


@pytest.mark.case("B14")
@pytest.mark.case("B20")
@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_chains_of_any_length_from_the_folder(folder: Folder, root: Certified, length: int) -> None:
    """Microsoft has put issuers in between without notice; the root here is an ECC P-384."""
    at = root
    for number in range(length):
        at = certify(
            f"CA {number}", issuer=at, ca=True, key=ec.generate_private_key(ec.SECP384R1())
        )
        folder.add(at.certificate, provider="azure", purpose="intermediate")
    assert proved(folder, signer(at)) == Identity(
        "azure",
        "8a205152-b25a-417f-a676-80465535a6c9",
        "b1310a36-d400-46f6-82cb-6217df846586",
        None,
    )


def test_issuers_may_come_along(folder: Folder, root: Certified) -> None:
    """A chain that came with the document is as good as one from the folder: the root decides."""
    between = certify("CA", issuer=root, ca=True)
    assert proved(folder, signer(between), extra=(between.der,)).provider == "azure"


def test_a_cross_signed_issuer_is_tried_both_ways(folder: Folder, root: Certified) -> None:
    """One of the two leads to a root that is not ours."""
    key = ec.generate_private_key(ec.SECP256R1())
    foreign = certify("CA", issuer=certify("Foreign", ca=True), ca=True, key=key)
    ours = certify("CA", issuer=root, ca=True, key=key)
    for between in (foreign, ours):
        folder.add(between.certificate, provider="azure", purpose="intermediate")
    assert proved(folder, signer(ours)).provider == "azure"


def _below(issuer: Certified) -> tuple[Certified, tuple[bytes, ...]]:
    return signer(issuer), (issuer.der,)


BROKEN: dict[str, Callable[[Certified], tuple[Certified, tuple[bytes, ...]]]] = {
    "self-signed": lambda _: (certify("signer", dns=(NAME,)), ()),
    "a root of the same name": lambda _: (signer(certify("Root", ca=True)), ()),
    "an issuer that is no CA": lambda root: _below(certify("CA", issuer=root)),
    "a signer that is a CA": lambda root: (signer(root, ca=True), ()),
    "expired": lambda root: (signer(root, not_after=NOW - timedelta(minutes=1)), ()),
    "not yet": lambda root: (signer(root, not_before=NOW + timedelta(minutes=1)), ()),
    "a weak key": lambda root: (signer(root, key=rsa.generate_private_key(65537, 1024)), ()),  # noqa: S505 - the point
    "an odd exponent": lambda root: (signer(root, key=rsa.generate_private_key(3, 2048)), ()),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_signer_without_a_path_is_refused(folder: Folder, root: Certified, name: str) -> None:
    """Each has the right name, and made a good signature."""
    by, extra = BROKEN[name](root)
    with pytest.raises(Unproven, match="chain"):
        proved(folder, by, extra=extra)


def test_issuers_in_a_circle_end(folder: Folder) -> None:
    """Names that lead round must not hold a worker."""
    ring = [certify(f"CA {number % 7}", ca=True) for number in range(7)]
    circle = tuple(
        certify(f"CA {n}", issuer=ring[(n + 1) % 7], ca=True, key=ring[n].key).der for n in range(7)
    )
    with pytest.raises(Unproven, match="chain"):
        proved(folder, signer(ring[0]), extra=circle)


@pytest.mark.parametrize("partition", ["azure-us-gov", "azure-cn"])
def test_a_cloud_has_its_own_roots(folder: Folder, root: Certified, partition: str) -> None:
    """What a root may say of one cloud it may not say of another."""
    name = {"azure-us-gov": "metadata.azure.us", "azure-cn": "chinaeast2.metadata.azure.cn"}[
        partition
    ]
    with pytest.raises(Unproven, match="region-unknown"):
        proved(folder, signer(root, name))
    folder.add(root.certificate, provider="azure", partition=partition, purpose="root")
    assert proved(folder, signer(root, name)).provider == "azure"


@pytest.mark.parametrize(
    "names",
    [
        ("metadata.azure.org",),
        ("evilmetadata.azure.com",),
        ("metadata.azure.com.evil.example",),
        ("a.b.metadata.azure.com",),
        ("*.metadata.azure.com",),
        (".metadata.azure.com",),
        ("metadata.azure.com.",),
        ("azure.com",),
        ("metadata.azure.com", "metadata.azure.us"),
        ("metadata.azure.com", "evil.example"),
    ],
)
def test_names_are_compared_label_by_label(
    folder: Folder, root: Certified, names: tuple[str, ...]
) -> None:
    """An ending of characters is not an ending of labels, and every name of the certificate counts."""
    with pytest.raises(Unproven, match="name"):
        proved(folder, signer(root, *names))


def test_a_common_name_does_not_count_beside_other_names(folder: Folder, root: Certified) -> None:
    """CAs check what is in the alternative names."""
    with pytest.raises(Unproven, match="name"):
        proved(folder, signer(root, "evil.example", common_name="metadata.azure.com"))


TIMES = DOCUMENT["timeStamp"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vmId": ""}, "document"),
        ({"vmId": None}, "document"),
        ({"vmId": "some-vm"}, "document"),
        ({"subscriptionId": None}, "document"),
        ({"timeStamp": None}, "document"),
        ({"timeStamp": {"createdOn": TIMES["createdOn"]}}, "document"),
        ({"timeStamp": {**TIMES, "createdOn": "2026-01-01T00:30:00Z"}}, "document"),
        ({"timeStamp": {**TIMES, "createdOn": "13/01/26 00:30:00 -0000"}}, "document"),
        ({"timeStamp": {**TIMES, "expiresOn": "01/03/26 00:30:00 -0000"}}, "lifetime"),
        ({"timeStamp": {**TIMES, "expiresOn": "01/01/26 00:50:00 -0000"}}, "stale"),
        ({"timeStamp": {**TIMES, "createdOn": "01/01/26 03:30:00 -0000"}}, "not-yet"),
    ],
)
@pytest.mark.case("B24")
def test_what_is_signed_and_is_no_identity_is_refused(
    folder: Folder, root: Certified, changes: dict[str, Any], reason: str
) -> None:
    """A null where a text should be has been a server's error elsewhere."""
    with pytest.raises(Unproven, match=reason):
        proved(folder, signer(root), content=json.dumps({**DOCUMENT, **changes}).encode())


def test_the_nonce_is_the_csrs_where_the_policy_asks(folder: Folder, root: Certified) -> None:
    """Ten digits are no binding, but better than none."""
    asks = AzureConfig(nonce=True)
    assert proved(folder, signer(root), config=asks).provider == "azure"
    with pytest.raises(Unproven, match="nonce"):
        proved(folder, signer(root), config=asks, csr=b"d" * 32)
    assert proved(folder, signer(root), csr=b"d" * 32).provider == "azure"


def test_an_attackers_certificate_in_front_changes_nothing(folder: Folder, root: Certified) -> None:
    """The first certificate of a CMS is anybody's; the signer's name decides."""
    genuine, attacker = signer(root), certify("signer", dns=(NAME,))
    assert proved(folder, genuine, extra=(attacker.der,)).provider == "azure"
    with pytest.raises(Unproven, match="chain"):
        proved(folder, attacker, extra=(genuine.der,))


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_changed_byte_gets_no_other_identity_in_and_no_error_out(
    folder: Folder, root: Certified
) -> None:
    """Certificates are parsed when they are asked for, so that a hostile one can raise anywhere."""
    between = certify("CA", issuer=root, ca=True)
    by = signer(between)
    data = bytearray(Cms(CONTENT, by, attributes=False, certificates=(between.der, by.der)).make())
    anchors = AnchorFolder(folder.write())

    def outcome() -> Identity | str:
        evidence = CloudEvidence("azure", "attested", b"", bytes(data))
        try:
            return prove(evidence, anchors, AzureConfig(), CSR, NOW)
        except Unproven as error:
            return error.reason

    genuine = outcome()
    assert isinstance(genuine, Identity)
    for at in range(0, len(data), 3):
        was = data[at]
        for data[at] in (was ^ 0x80, was ^ 0x01):
            assert isinstance(found := outcome(), str) or found == genuine
        data[at] = was
