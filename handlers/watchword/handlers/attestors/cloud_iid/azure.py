"""Azure: the attested document of the instance metadata service, a CMS whose signer chains to a root of ours.

It names the VM and its subscription, and no region. It can be had again and again, is good for hours, and
is about no CSR; its nonce has ten digits and may be that of a cached document.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID

from watchword.handlers.attestors.cloud_iid import chain, cms
from watchword.handlers.attestors.cloud_iid.anchors import Anchor, AnchorFolder
from watchword.handlers.attestors.cloud_iid.binding import nonce_for
from watchword.handlers.attestors.cloud_iid.config import AzureConfig
from watchword.handlers.attestors.cloud_iid.document import (
    Identity,
    is_object,
    read_document,
    text_of,
)
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.manifest import Purpose
from watchword.handlers.attestors.cloud_iid.reasons import Unproven

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"(\d\d)/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d) [-+]0000", re.ASCII)
_MOST_SIGNERS = 128
_CENTURY = 2000
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def prove(
    shown: CloudEvidence,
    folder: AnchorFolder,
    config: AzureConfig,
    csr_sha256: bytes,
    now: datetime,
) -> Identity:
    """Return the instance that Azure signed.

    Raises:
        Unproven: see `REASONS`.
    """
    # 1. One signer; the certificate inside that it names, whatever its place among them.
    # 2. Its names lead to the metadata service of one of the clouds, compared label by label.
    # 3. It chains to a root of that cloud, now, by issuers from the folder or from the CMS.
    # 4. It made the signature.
    # 5. What it says: times, VM and subscription from the signed bytes; the nonce if the policy asks.

    # Step 1
    signed = cms.read(shown.signature)
    encoded = cms.named_certificate(signed)

    # Steps 2 and 3, which say the same of a signer until one of its certificates ends
    signer = _signer(signed, encoded, folder, config, now)

    # Step 4
    cms.verify(signed, signer.key)
    for anchor in signer.anchors:
        folder.used(anchor, now)

    # Step 5
    document = read_document(signed.content)
    _check_times(document, config, now)
    if config.nonce and document.get("nonce") != nonce_for(csr_sha256):
        raise Unproven("nonce")
    machine = text_of(document, "vmId").lower()
    subscription = text_of(document, "subscriptionId").lower()
    if not _UUID.fullmatch(machine) or not _UUID.fullmatch(subscription):
        raise Unproven("document")
    return Identity(provider="azure", account=subscription, instance=machine, region=None)


@dataclass(frozen=True, slots=True)
class _Signer:
    """A signer of Azure's that has a path to a root of ours, between two times."""

    key: CertificatePublicKeyTypes
    anchors: tuple[Anchor, ...]
    """Those on the path."""
    begins: datetime
    ends: datetime


def _signer(
    signed: cms.Signed, encoded: bytes, folder: AnchorFolder, config: AzureConfig, now: datetime
) -> _Signer:
    """Return the signer. All machines of a region have the same for weeks: it is verified once for each set of anchors."""
    anchors = folder.current
    known = (encoded, signed.certificates, config.names)
    found: _Signer | None = anchors.signers.get(known)
    if found is not None and found.begins <= now <= found.ends:
        return found

    # Step 2
    leaf = chain.load(encoded)
    partition = _partition(leaf, config)

    # Step 3
    roots = folder.in_force(anchors.azure.get((partition, "root"), ()), now)
    purpose: Purpose = "intermediate"
    between = anchors.azure.get((partition, purpose), ())
    issuers = [a.certificate for a in between]
    issuers += [chain.load(der) for der in signed.certificates if der != encoded]
    path = chain.verify_chain(leaf, issuers, [a.certificate for a in roots], now)
    made = _Signer(
        leaf.public_key(),
        tuple(anchor for anchor in (*roots, *between) if anchor.certificate in path),
        max(each.not_valid_before_utc for each in path),
        min(each.not_valid_after_utc for each in path),
    )
    if len(anchors.signers) >= _MOST_SIGNERS:
        anchors.signers.clear()
    anchors.signers[known] = made
    return made


def _partition(leaf: x509.Certificate, config: AzureConfig) -> str:
    """Return the cloud of which the certificate names the metadata service.

    Every name has to lead to the same one: a certificate for two services is neither's.
    """
    found = {_cloud_of(name, config) for name in _names(leaf)}
    if len(found) != 1 or None in found:
        raise Unproven("name")
    return str(found.pop())


def _names(leaf: x509.Certificate) -> list[str]:
    """Return the DNS names of a certificate, or its common name where it has none (RFC 6125, 6.4.4)."""
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if any(not isinstance(name, x509.DNSName) for name in names):
            raise Unproven("name")
        return names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        return [str(a.value) for a in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise Unproven("name") from None


def _cloud_of(name: str, config: AzureConfig) -> str | None:
    """Return the cloud whose service has this name, or this name below its own."""
    labels = name.lower().split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        return None  # no wildcards, no empty labels, no NULs
    for partition, service in config.names:
        wanted = service.split(".")
        # `eastus.metadata.azure.com` is the service in one region; nothing is deeper.
        if labels[-len(wanted) :] == wanted and len(labels) <= len(wanted) + 1:
            return partition
    return None


def _check_times(document: dict[str, Any], config: AzureConfig, now: datetime) -> None:
    times = document.get("timeStamp")
    if not is_object(times):
        raise Unproven("document")
    created, expires = _time(times, "createdOn"), _time(times, "expiresOn")
    if created > now + config.leeway:
        raise Unproven("not-yet")
    if now >= expires + config.leeway:
        raise Unproven("stale")
    if not created < expires <= created + config.max_life:
        raise Unproven("lifetime")


def _time(times: dict[str, Any], name: str) -> datetime:
    """Return a time such as `07/28/26 13:24:00 -0000`."""
    found = _TIME.fullmatch(text_of(times, name))
    if found is None:
        raise Unproven("document")
    month, day, year, hour, minute, second = map(int, found.groups())
    try:
        return datetime(_CENTURY + year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise Unproven("document") from None
