"""AWS: the instance identity document, by PKCS#7 or by a bare signature.

One RSA-1024 key serves 17 regions and one DSA key 14, so a good signature proves AWS and the document,
and not that the region in it was chosen by us: the account's own list of regions says what may join.
"""

import re
from datetime import datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from watchword.handlers.attestors.cloud_iid import cms
from watchword.handlers.attestors.cloud_iid.anchors import Anchor, AnchorFolder
from watchword.handlers.attestors.cloud_iid.config import AwsConfig
from watchword.handlers.attestors.cloud_iid.document import Identity, read_document, text_of
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.manifest import REGION, Purpose
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

_ACCOUNT = re.compile(r"[0-9]{12}")
_INSTANCE = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_PENDING = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def prove(shown: CloudEvidence, folder: AnchorFolder, config: AwsConfig, now: datetime) -> Identity:
    """Return the instance that AWS signed.

    Raises:
        Unproven: see `REASONS`.
    """
    # 1. The signed bytes; a copy beside a PKCS#7 must be the same bytes.
    # 2. What they say, each member by its own grammar. Nothing else of the evidence is read.
    # 3. The anchors of that region and kind of signature, and only those.
    # 4. The signature, by the anchor that the signer names.
    # 5. The age: a document has no end of its own and can be had for as long as the instance runs.

    # Step 1
    signed = None
    content = shown.document
    if shown.form != "rsa":
        signed = cms.read(shown.signature)
        if not signed.attributes:
            raise Unproven("cms-attributes")  # AWS always sends them
        if content and content != signed.content:
            raise Unproven("unsigned-copy")
        content = signed.content

    # Step 2
    document = read_document(content)
    region = text_of(document, "region")
    account = text_of(document, "accountId")
    instance = text_of(document, "instanceId")
    zone = text_of(document, "availabilityZone")
    if not (
        REGION.fullmatch(region)
        and zone.startswith(region)
        and _ACCOUNT.fullmatch(account)
        and _INSTANCE.fullmatch(instance)
    ):
        raise Unproven("document")
    pending = _pending(document)

    # Step 3
    anchors = folder.current
    purpose: Purpose = shown.form  # type: ignore[assignment] # `evidence` takes AWS's three forms only
    held = folder.in_force(anchors.aws.get((region, purpose), ()), now)

    # Step 4
    anchor = (
        _bare(held, shown.signature, content) if signed is None else _signer(held, signed, config)
    )
    folder.used(anchor, now)

    # Step 5
    if pending > now + config.leeway:
        raise Unproven("not-yet")
    if now - pending > config.max_age:
        raise Unproven("stale")
    partition = anchor.entry.partition
    return Identity(
        provider="aws",
        account=account if partition == "aws" else f"{partition}:{account}",
        instance=instance,
        region=region,
    )


def _pending(document: dict[str, Any]) -> datetime:
    text = text_of(document, "pendingTime")
    if not _PENDING.fullmatch(text):
        raise Unproven("document")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Unproven("document") from None


def _signer(held: list[Anchor], signed: cms.Signed, config: AwsConfig) -> Anchor:
    """Return the anchor that SignerInfo names, if it made the signature. Certificates inside do not count."""
    for anchor in held:
        if cms.names(signed, anchor.der):
            cms.verify(signed, anchor.key, unsafe_dsa=config.unsafe_dsa)
            return anchor
    raise Unproven("cms-certificate")


def _bare(held: list[Anchor], signature: bytes, document: bytes) -> Anchor:
    """Return the anchor whose key signed the document: RSASSA-PKCS1-v1_5 with SHA-256."""
    for anchor in held:
        key = anchor.key
        try:
            if isinstance(key, rsa.RSAPublicKey):
                key.verify(signature, document, padding.PKCS1v15(), SHA256())
                return anchor
        except (InvalidSignature, ValueError):
            continue
    raise Unproven("signature")
