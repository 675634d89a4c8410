"""Rows as the journal has them, as the rows of the join core."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from watchword.handlers.anchors import (
    CloudAccount,
    DiscoverySite,
    Image,
    TpmEndorsement,
    TpmPolicy,
)
from watchword.handlers.rebuild.fold import Row
from watchword.handlers.rows import (
    AdmittedCsr,
    CertificateRow,
    NodeRow,
    Pair,
    Renewable,
    RequestRow,
)
from watchword.schemas.canonical import unb64
from watchword.schemas.ids import TenantId

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIVE = frozenset(("adopting", "active"))


def at(microseconds: int) -> datetime:
    """Return a time of the journal."""
    return _EPOCH + timedelta(microseconds=microseconds)


def node_row(row: Row) -> NodeRow:
    """Return a node."""
    return NodeRow(
        id=UUID(row["id"]),
        **{name: row[name] for name in NodeRow.__slots__ if name not in ("id", "version")},
        version=row.get("version", 1),
    )


def certificate_row(row: Row) -> CertificateRow:
    """Return a certificate."""
    return CertificateRow(
        tbs_sha256=unb64(row["tbs_sha256"]),
        node_id=UUID(row["node_id"]),
        spki_sha256=unb64(row["spki_sha256"]),
        not_before=at(row["not_before"]),
        not_after=at(row["not_after"]),
        allowed_kinds=_tuple(row["allowed_kinds"]),
        node_key_uri=row["node_key_uri"],
        is_current=row["is_current"],
        revoked=row["revoked_at"] is not None,
    )


def admitted_csr(row: Row, node: Row) -> AdmittedCsr:
    """Return the admission of a CSR."""
    certificate = certificate_row(row)
    return AdmittedCsr(
        csr_sha256=unb64(row["csr_sha256"]),
        node_id=certificate.node_id,
        serial=unb64(row["serial"]),
        der=unb64(row["der"]),
        not_before=certificate.not_before,
        not_after=certificate.not_after,
        allowed_kinds=certificate.allowed_kinds,
        stands=certificate.is_current and not certificate.revoked and node["state"] in _LIVE,
        tenant=node["tenant"],
        pool=node["pool"],
        site=node["site"],
        role=node["role"],
    )


def renewable(row: Row, node: Row, successor: Row | None) -> Renewable:
    """Return a certificate with its node, and the one that a renewal gave in its place."""
    return Renewable(
        csr_sha256=unb64(row["csr_sha256"]),
        serial=unb64(row["serial"]),
        certificate=certificate_row(row),
        node=node_row(node),
        successor_spki=None if successor is None else unb64(successor["spki_sha256"]),
        contested=row.get("contested_at") is not None,
    )


def pair(row: Row) -> Pair:
    """Return attestor and subject of a binding."""
    return (row["attestor"], unb64(row["subject"]))


def request_row(row: Row) -> RequestRow:
    """Return a join that waits or waited."""
    return RequestRow(
        key=(row["attestor"], unb64(row["subject"]), unb64(row["csr_sha256"])),
        id=UUID(row["id"]),
        state=row["state"],
        version=row["version"],
        snapshot=unb64(row["snapshot"]),
        expires_at=at(row["expires_at"]),
    )


def _image(row: Row) -> Image:
    return Image(
        **_fields(row, Image.__slots__, ("secret_sha256",), ("expires_at",)),
        revoked=row["revoked_at"] is not None,
    )


def _site(row: Row) -> DiscoverySite:
    fields = _fields(row, DiscoverySite.__slots__, ("public_key",), ("expires_at",))
    return DiscoverySite(**fields, revoked=row["revoked_at"] is not None)


def _account(row: Row) -> CloudAccount:
    fields = _fields(row, CloudAccount.__slots__, (), ())
    fields["regions"] = _tuple(row["regions"])
    return CloudAccount(**fields, revoked=row["revoked_at"] is not None)


def _endorsement(row: Row) -> TpmEndorsement:
    fields = _fields(row, TpmEndorsement.__slots__, ("ek_sha256",), ())
    fields["approval"] = bool(row.get("approval"))
    return TpmEndorsement(**fields, revoked=row["revoked_at"] is not None)


def _policy(row: Row) -> TpmPolicy:
    return TpmPolicy(TenantId(row["tenant"]), row["pool"], row["policy"])


ANCHORS: Mapping[str, Callable[[Row], Any]] = {
    "images": _image,
    "discovery_sites": _site,
    "cloud_accounts": _account,
    "tpm_endorsements": _endorsement,
    "tpm_policies": _policy,
}
"""What makes a row of each table of operators' words."""


def _fields(
    row: Row, names: Iterable[str], binary: Iterable[str], times: Iterable[str]
) -> dict[str, Any]:
    fields = {name: row[name] for name in names if name in row and name != "revoked"}
    for name in binary:
        fields[name] = unb64(row[name])
    for name in times:
        fields[name] = None if row[name] is None else at(row[name])
    if "allowed_kinds" in fields:
        fields["allowed_kinds"] = _tuple(row["allowed_kinds"])
    return fields


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
