"""Identities that clouds signed: each judged at its own time, with the anchors of the vectors, and held against the verdict.

Two kinds of files are judged together: a document of AWS is nothing without the signature beside it.
"""

import json
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.clouds import Folder
from tests.vectors.judging import Entry, Mismatch, Result, accepts, aside, refuses
from watchword.handlers.attestors.cloud_iid import cms
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder, key_type
from watchword.handlers.attestors.cloud_iid.aws import prove as prove_aws
from watchword.handlers.attestors.cloud_iid.azure import prove as prove_azure
from watchword.handlers.attestors.cloud_iid.config import AwsConfig, AzureConfig, GcpConfig
from watchword.handlers.attestors.cloud_iid.document import read_document
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence, Form
from watchword.handlers.attestors.cloud_iid.gcp import prove as prove_gcp
from watchword.handlers.attestors.cloud_iid.gcp import verify_token
from watchword.handlers.attestors.cloud_iid.jwks import read_key_set
from watchword.handlers.attestors.cloud_iid.manifest import Purpose
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

_LEGACY = AwsConfig(unsafe_dsa=True)
_DOCUMENTS = {"document.json", "document", "aws_iid_DOCUMENT", "aws_iid_DOCUMENT_bad"}
_GOOGLE_AUDIENCE = "gcp:Kops Provisioner"
_IN_ITS_HOUR = datetime(2019, 4, 18, tzinfo=UTC)
_ROCA = "rejectsKeyWithRocaVulnerability"
"""A key set is an operator's copy of Google's: how its keys were made is not judged here."""


def aws(entries: Sequence[Entry]) -> Iterator[Result]:
    """Judge each document with each signature that is beside it, by its region's anchors."""
    anchors = _aws_anchors(entries[0].root)
    for entry in entries:
        if "CERTIFICATE" in entry.data().decode("latin-1"):
            yield from _certificate(entry, anchors)
        elif entry.name in _DOCUMENTS:
            yield from _document(entry, anchors)
        else:
            yield from _signature(entry, anchors)


def _document(entry: Entry, anchors: AnchorFolder) -> Iterator[Result]:
    if entry.name.startswith("aws_iid"):
        found = {"aws_iid_SIGNATURE": entry.data()}
    else:
        found = {p.name: entry.data() for p in sorted(entry.folder.iterdir())}
    for name in found:
        form = _form(name)
        path = entry.folder / name
        if form is None or "bad" in name.lower():
            continue
        judge = accepts if _is_taken(entry, form) else refuses
        signature = _armoured(path)
        yield judge(entry, _with(form, signature, anchors), case=name)


def _signature(entry: Entry, anchors: AnchorFolder) -> Iterator[Result]:
    form = _form(entry.name)
    document = next(
        (entry.folder / n for n in sorted(_DOCUMENTS) if (entry.folder / n).is_file()), None
    )
    if form is None:
        yield refuses(entry, lambda data: _prove("rsa2048", data, b"", anchors))
        return
    beside = document.read_bytes() if document is not None and form == "rsa" else b""
    try:
        data = _armoured(entry.root / entry.path)
    except ValueError:
        data = entry.data()

    def take(signed: bytes) -> None:
        _prove(form, signed, beside, anchors)

    if not _is_taken(entry, form):
        yield refuses(entry, take, data)
        return
    # Much of a CMS is signed by nobody: what is changed is the signature, which ends it, and the content.
    flips = range(0, len(data), 9) if form == "rsa" else _vouched(data)
    yield accepts(entry, take, data, flips=flips)
    others = _without(entry.root, _region(form, data, beside))
    yield refuses(entry, lambda d: _prove(form, d, beside, others), data, case="without its region")


def _certificate(entry: Entry, anchors: AnchorFolder) -> Iterator[Result]:
    """Tell whether a certificate beside documents is an anchor of ours, as its verdict has it."""
    certificate = x509.load_pem_x509_certificate(entry.data())
    ours = {anchor.certificate for anchor in anchors.current.anchors}

    def take(_data: bytes) -> None:
        if certificate not in ours:
            raise Mismatch

    is_ours = entry.expect == "accept" or "same cert as aws-certs" in entry.verdict
    yield accepts(entry, take, flips=()) if is_ours else refuses(entry, take)


def azure(entries: Sequence[Entry]) -> Iterator[Result]:
    """Judge each attested document by the roots of the vectors, at the time at which it was given."""
    anchors = _azure_anchors(entries[0].root)

    def at(now: datetime) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            shown = CloudEvidence.decode(CloudEvidence("azure", "attested", b"", data).encode())
            prove_azure(shown, anchors, AzureConfig(), bytes(32), now)

        return take

    for entry in entries:
        if entry.name.endswith("good.json"):
            (said,) = json.loads(entry.data())
            data = b64decode(said["document"])
            content = data.index(b'"vmId"')
            flips = (content + 10, content - 4, len(data) - 1, len(data) - 100)
            yield accepts(entry, at(datetime(2026, 7, 28, 14, tzinfo=UTC)), data, flips=flips)
            yield refuses(
                entry, at(datetime(2026, 7, 28, 20, tzinfo=UTC)), data, case="hours later"
            )
        elif entry.name == "response.json":
            data = b64decode(json.loads(entry.data())["signature"])
            for day in (
                datetime(2018, 11, 20, 22, 8, tzinfo=UTC),
                datetime(2026, 11, 29, tzinfo=UTC),
            ):
                yield refuses(entry, at(day), data, case=f"{day:%Y}")
        elif entry.name == "signer.pem":
            yield refuses(entry, lambda data: _root(data, anchors))
        else:
            for day in (
                datetime(2019, 12, 13, 1, tzinfo=UTC),
                datetime(2020, 11, 15, 13, tzinfo=UTC),
            ):
                yield refuses(entry, at(day), _armoured(entry.root / entry.path), case=f"{day:%Y}")


def _root(data: bytes, anchors: AnchorFolder) -> None:
    certificate = x509.load_pem_x509_certificate(data)
    if certificate not in {anchor.certificate for anchor in anchors.current.anchors}:
        raise Mismatch


def google(entries: Sequence[Entry]) -> Iterator[Result]:
    """Judge the token within its hour and outside of it, and each of Wycheproof's by the keys of its group."""
    by_name = {entry.name: entry for entry in entries}
    keys = read_key_set(by_name["jwks.json"].data())[0]

    def take(audience: str, now: datetime) -> Callable[[bytes], None]:
        def judge(token: bytes) -> None:
            prove_gcp(token, keys, GcpConfig(), audience, now)

        return judge

    for entry in entries:
        data = entry.data().strip()
        if entry.name == "token.jwt":
            yield accepts(entry, take(_GOOGLE_AUDIENCE, _IN_ITS_HOUR), data)
            yield refuses(entry, take("watchword", _IN_ITS_HOUR), data, case="another audience")
            late = datetime(2026, 11, 29, tzinfo=UTC)
            yield refuses(entry, take(_GOOGLE_AUDIENCE, late), data, case="today")
        elif entry.name == "jwks.json":
            # A key set is trusted as it is: a changed one is another key set.
            yield accepts(entry, lambda d: _usable(d, 2), flips=())
        elif entry.name.endswith("_test.json"):
            yield from _wycheproof(entry)
        else:
            # The same keys in another form, all of them over: as keys of now they are no key set.
            yield refuses(entry, lambda d: _usable(d, 1))


def _usable(data: bytes, count: int) -> None:
    try:
        keys, _ = read_key_set(data)
    except ValueError:
        raise Mismatch from None
    if len(keys) != count:
        raise Mismatch


def _by(keys: Mapping[str, rsa.RSAPublicKey]) -> Callable[[bytes], None]:
    """Return the judge of tokens by these keys."""

    def judge(token: bytes) -> None:
        verify_token(token, keys)

    return judge


def _wycheproof(entry: Entry) -> Iterator[Result]:
    for group in json.loads(entry.data())["testGroups"]:
        key = group.get("public") or group.get("private")
        held, _ = read_key_set(json.dumps({"keys": key.get("keys", [key])}).encode())
        for case in group["tests"]:
            name = f"{case['tcId']} {case['comment']}"
            token = case["jws"]
            if not isinstance(token, str):
                yield aside(entry, "the JSON serialisation, which no cloud sends", case=name)
            elif case["comment"] == _ROCA:
                yield aside(entry, "how an operator's copy of Google's keys was made", case=name)
            elif case["result"] == "invalid":
                yield refuses(entry, _by(held), token.encode(), case=name)
            elif held and _is_googles(token):
                yield accepts(entry, _by(held), token.encode(), case=name)
            else:
                # Good for another algorithm or header than Google's: not for us.
                yield refuses(entry, _by(held), token.encode(), case=name)


def _is_googles(token: str) -> bool:
    part = token.split(".", maxsplit=1)[0]
    header: dict[str, Any] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return header.keys() <= {"alg", "kid", "typ"} and header["alg"] == "RS256" and "kid" in header


def _prove(form: Form, signature: bytes, document: bytes, anchors: AnchorFolder) -> None:
    """Judge AWS's document five minutes after the time that it says itself."""
    shown = CloudEvidence.decode(CloudEvidence("aws", form, document, signature).encode())
    content = document if form == "rsa" else _content(signature)
    try:
        said = str(read_document(content)["pendingTime"])
        pending = datetime.fromisoformat(said)
    except (Unproven, KeyError, ValueError):
        pending = datetime(2020, 1, 1, tzinfo=UTC)
    prove_aws(shown, anchors, _LEGACY, pending + timedelta(minutes=5))


def _with(form: Form, signature: bytes, anchors: AnchorFolder) -> Callable[[bytes], None]:
    def take(document: bytes) -> None:
        _prove(form, signature, document, anchors)

    return take


def _content(signature: bytes) -> bytes:
    try:
        return cms.read(signature).content
    except Unproven:
        return b""


def _vouched(data: bytes) -> list[int]:
    """Return places of the content and of the signature in a CMS."""
    begin = data.index(b'"accountId"')
    return [begin, begin + 16, data.index(b'"region"') + 12, len(data) - 30, len(data) - 60]


def _region(form: Form, data: bytes, document: bytes) -> str:
    content = document if form == "rsa" else _content(data)
    return str(read_document(content)["region"])


def _is_taken(entry: Entry, form: Form) -> bool:
    # Signed by AWS, and by a way that is off unless said: the verdicts on DSA are about the default.
    return entry.expect == "accept" or form == "dsa"


def _form(name: str) -> Form | None:
    stem = name.lower()
    if "pubkey" in stem or "cert" in stem:
        return None
    if "rsa2048" in stem:
        return "rsa2048"
    if "pkcs7" in stem:
        return "dsa"
    return "rsa" if "sig" in stem else None


def _armoured(path: Path) -> bytes:
    lines = path.read_text().splitlines()
    return b64decode("".join(line for line in lines if not line.startswith("-----")))


@cache
def _aws_anchors(root: Path) -> AnchorFolder:
    return _without(root, "")


@cache
def _without(root: Path, region: str) -> AnchorFolder:
    """Return AWS's anchors but for one region's."""
    purposes: tuple[Purpose, ...] = ("rsa2048", "dsa", "rsa")
    with TemporaryDirectory() as name:
        folder = Folder(Path(name))
        for purpose in purposes:
            for path in sorted((root / "aws-certs" / purpose).glob("*.pem")):
                if path.stem == region:
                    continue
                partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(
                    path.stem.rsplit("-", 2)[0], "aws"
                )
                folder.add(
                    x509.load_pem_x509_certificate(path.read_bytes()),
                    provider="aws", partition=partition, region=path.stem, purpose=purpose,
                )  # fmt: skip
        return AnchorFolder(folder.write(), expired="accept")


@cache
def _azure_anchors(root: Path) -> AnchorFolder:
    with TemporaryDirectory() as name:
        folder = Folder(Path(name))
        for part in ("azure-certs/roots", "mpl-2.0/azure-certs"):
            for path in sorted((root / part).glob("*.pem")):
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
                is_root = certificate.subject == certificate.issuer
                folder.add(
                    certificate, provider="azure", purpose="root" if is_root else "intermediate"
                )
        return AnchorFolder(folder.write())


def anchors(entries: Sequence[Entry]) -> Iterator[Result]:
    """Read each certificate of a cloud as an operator's import does."""
    for entry in entries:
        if entry.name.endswith(".json"):
            yield aside(entry, "a list of where another project fetched its certificates")
            continue
        yield accepts(entry, _readable, flips=())


def _readable(data: bytes) -> None:
    for certificate in x509.load_pem_x509_certificates(data):
        key_type(certificate)
