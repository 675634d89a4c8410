"""CMS SignedData by `asn1crypto`'s own model of it: what our reading is held against."""

import hashlib
from typing import Any

from asn1crypto import cms as _cms

from watchword.handlers.attestors.cloud_iid.cms import Signed


class Unlike(Exception):
    """It is not what a cloud sends."""


CMS: Any = _cms
"""`asn1crypto` has no annotations."""

_DIGESTS = {
    "sha1": "sha1",
    "sha256": "sha256",
    "sha384": "sha384",
    "sha512": "sha512",
    # Azure names the signature algorithm where the digest algorithm belongs.
    "1.2.840.113549.1.1.11": "sha256",
    "1.2.840.113549.1.1.12": "sha384",
    "1.2.840.113549.1.1.13": "sha512",
}
_SIGNATURES: dict[str, tuple[str, str | None]] = {
    "rsassa_pkcs1v15": ("rsa", None),
    "sha256_rsa": ("rsa", "sha256"),
    "sha384_rsa": ("rsa", "sha384"),
    "sha512_rsa": ("rsa", "sha512"),
    "sha256_ecdsa": ("ec", "sha256"),
    "sha384_ecdsa": ("ec", "sha384"),
    "sha512_ecdsa": ("ec", "sha512"),
    "sha1_dsa": ("dsa", "sha1"),
    "dsa": ("dsa", None),
}


def read_by_asn1crypto(data: bytes) -> Signed:
    """Return what a SignedData says; raises `Unlike`, or whatever `asn1crypto` raises."""
    info = CMS.ContentInfo.load(data, strict=True)
    if info["content_type"].native != "signed_data":
        raise Unlike
    signed_data = info["content"]

    # One signer: with two, "signed by" has two meanings.
    if len(signed_data["signer_infos"]) != 1:
        raise Unlike
    signer = signed_data["signer_infos"][0]
    if signer["sid"].name != "issuer_and_serial_number":
        raise Unlike
    sid = signer["sid"].chosen

    wrapped = signed_data["encap_content_info"]
    if wrapped["content_type"].native != "data":
        raise Unlike
    content = wrapped["content"].native
    if not isinstance(content, bytes) or not content:
        raise Unlike

    digest = _DIGESTS.get(signer["digest_algorithm"]["algorithm"].native)
    scheme, implied = _SIGNATURES.get(
        signer["signature_algorithm"]["algorithm"].native, (None, None)
    )
    if digest is None or scheme is None or implied not in (None, digest):
        raise Unlike

    attributes = signer["signed_attrs"]
    # `native` would say it as well, and turn everything below into Python's own types for it.
    present = isinstance(attributes, CMS.CMSAttributes)
    if present:
        _check_attributes(attributes, content, digest, signer)
    return Signed(
        content=content,
        certificates=_certificates(signed_data["certificates"]),
        signer=(sid["issuer"].dump(), sid["serial_number"].native),
        # Signed under the universal SET OF tag, not under the [0] that it travels with (RFC 5652, 5.4).
        signed=attributes.untag().dump() if present else content,
        attributes=present,
        scheme=scheme,
        digest=digest,
        signature=signer["signature"].native,
    )


def _check_attributes(attributes: Any, content: bytes, digest: str, signer: Any) -> None:  # noqa: ANN401 - see `CMS`
    """Hold the signed attributes against the content (RFC 5652, 11.1 and 11.2; RFC 6211)."""
    found: dict[str, Any] = {}
    for attribute in attributes:
        name = attribute["type"].native
        if name in found or len(attribute["values"]) != 1:
            raise Unlike
        found[name] = attribute["values"][0]
    if "content_type" not in found or "message_digest" not in found:
        raise Unlike
    if found["content_type"].native != "data":
        raise Unlike
    if found["message_digest"].native != hashlib.new(digest, content).digest():
        raise Unlike
    protection = found.get("cms_algorithm_protection")
    if protection is not None and (
        protection["digest_algorithm"].dump() != signer["digest_algorithm"].dump()
        or protection["signature_algorithm"]["algorithm"].native
        != signer["signature_algorithm"]["algorithm"].native
    ):
        raise Unlike


def _certificates(choices: Any) -> tuple[bytes, ...]:  # noqa: ANN401 - see `CMS`
    if not isinstance(choices, CMS.CertificateSet):
        return ()
    found: list[bytes] = []
    for choice in choices:
        if choice.name != "certificate":
            raise Unlike
        encoded: bytes = choice.chosen.dump()
        found.append(encoded)
    return tuple(found)
