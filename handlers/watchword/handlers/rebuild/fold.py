"""What each event did to the tables. Pure: an event becomes operations, and whoever has a database applies them.

An event's `private` part holds rows as the writer stored them: bytes in base64, times as integer
microseconds since the epoch, UUIDs as text, jsonb as its value. The operations carry them unchanged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from watchword.handlers.errors import WatchwordError

Row = dict[str, Any]
"""Columns by name, as the journal has them."""

KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "tenants": ("id",),
        "pools": ("tenant", "id"),
        "sites": ("tenant", "id"),
        "tokens": ("id",),
        "nodes": ("id",),
        "node_certs": ("csr_sha256",),
        "admission_claims": ("kind", "subject"),
        "node_subjects": ("subject", "node_id"),
        "node_bindings": ("attestor", "subject"),
        "attestation_uses": ("attestor", "subject"),
        "bans": ("subject",),
        "reclaim_grants": ("id",),
        "node_commands": ("id",),
        "join_requests": ("attestor", "subject", "csr_sha256"),
        "images": ("id",),
        "discovery_sites": ("kid",),
        "cloud_accounts": ("provider", "account"),
        "tpm_endorsements": ("ek_sha256",),
        "tpm_policies": ("tenant", "pool"),
        "operator_tokens": ("id",),
    }
)
"""The tables that the journal describes in full, and what identifies a row of each."""


class EventUnknown(WatchwordError):
    """The journal has a type of event that this release cannot fold: skipping it would hide a difference."""

    def __init__(self, event_type: str) -> None:
        """Name the type."""
        super().__init__(f"no fold for events of type {event_type}")
        self.event_type = event_type


class EventBroken(WatchwordError):
    """An event lacks what its fold needs."""

    def __init__(self, event_type: str, what: str) -> None:
        """Name the type and what is missing."""
        super().__init__(f"an event of type {event_type} cannot be folded: {what}")


@dataclass(frozen=True, slots=True)
class Put:
    """Insert the row, or replace the one with its key."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Patch:
    """Change columns of one row; columns in `unless_set` only where they are null."""

    table: str
    key: Row
    changes: Row
    unless_set: Row = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Add:
    """Add to a number."""

    table: str
    key: Row
    column: str
    amount: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Take one row away."""

    table: str
    key: Row


Operation = Put | Patch | Add | Delete

GENESIS: Final[tuple[Operation, ...]] = (
    Put(
        "tenants",
        {"id": "root", "title": "Whoever has authenticated as nobody", "created_at": 0},
    ),
)
"""What the schema begins with, before any event."""


def fold(event_type: str, private: Mapping[str, Any] | None) -> list[Operation]:
    """Return what an event did, in order.

    Raises:
        EventUnknown: no fold for the type.
        EventBroken: `private` is not what the type needs.
    """
    found = _FOLDS.get(event_type)
    if found is None:
        raise EventUnknown(event_type)
    if private is None:
        what = "it has no private part"
        raise EventBroken(event_type, what)
    try:
        return found(private)
    except (KeyError, TypeError, AttributeError) as error:
        raise EventBroken(event_type, f"{type(error).__name__} {error}") from error


def _created(table: str) -> Callable[[Mapping[str, Any]], list[Operation]]:
    return lambda private: [Put(table, private["row"])]


def _changed(table: str) -> Callable[[Mapping[str, Any]], list[Operation]]:
    def changed(private: Mapping[str, Any]) -> list[Operation]:
        key = _key(table, private["row"])
        return [Patch(table, key, {n: v for n, v in private["row"].items() if n not in key})]

    return changed


def _deleted(table: str) -> Callable[[Mapping[str, Any]], list[Operation]]:
    return lambda private: [Delete(table, _key(table, private["row"]))]


def _nothing(_private: Mapping[str, Any]) -> list[Operation]:
    return []


def _key(table: str, row: Row) -> Row:
    return {name: row[name] for name in KEYS[table]}


def _joined(private: Mapping[str, Any]) -> list[Operation]:
    """Fold an admission: what was spent and claimed, the node, its certificate, those it replaces."""
    node_id = private["node"]["id"]
    done: list[Operation] = [
        Add("tokens", {"id": token}, "uses_left", -count) for token, count in _spent(private)
    ]
    done += [
        Patch(
            "node_certs",
            {"csr_sha256": csr},
            {"is_current": False},
            {"revoked_at": private["revoked_at"], "revoked_why": private["revoked_why"]},
        )
        for csr in private["revoked"]
    ]
    done.append(_node(private["node"]))
    done.append(Put("node_certs", private["certificate"]))
    for table, member in (
        ("admission_claims", "claims"),
        ("node_subjects", "subjects"),
        ("node_bindings", "bindings"),
        ("attestation_uses", "uses"),
    ):
        done += [Put(table, {**row, "node_id": node_id}) for row in private[member]]
    gone = private.get("unbound", ())
    done += [Delete("node_bindings", _key("node_bindings", row)) for row in gone]
    if (grant := private.get("grant")) is not None:
        done += _changed("reclaim_grants")({"row": grant})
    if (approval := private.get("approval")) is not None:
        done.append(Patch("join_requests", approval, {"state": "consumed"}))
        done.append(Add("join_requests", approval, "version", 1))
    return done


def _node(row: Row) -> Operation:
    """Return a node's row; one that was re-keyed was there before, and keeps when it first joined."""
    if row["joined_at"] is not None:
        return Put("nodes", {"version": 1, **row})  # the first releases did not count
    changes = {name: value for name, value in row.items() if name not in {"id", "joined_at"}}
    return Patch("nodes", {"id": row["id"]}, changes)


def _renewed(private: Mapping[str, Any]) -> list[Operation]:
    """Fold a renewal: the node, the certificate that goes, the one that comes, and its claims."""
    node_id, certificate = private["node"]["id"], private["certificate"]
    superseded = {"csr_sha256": private["superseded"]}
    changes = {"is_current": False, "renewed_by": certificate["csr_sha256"]}
    return [
        *_changed("nodes")({"row": private["node"]}),
        Patch("node_certs", superseded, changes),
        Put("node_certs", certificate),
        *(Put("admission_claims", {**row, "node_id": node_id}) for row in private["claims"]),
    ]


def _node_changed(private: Mapping[str, Any]) -> list[Operation]:
    """Fold a node's new state, and the bindings that it loses with it."""
    unbound = [Delete("node_bindings", _key("node_bindings", row)) for row in private["unbound"]]
    return [*_changed("nodes")({"row": private["node"]}), *unbound]


def _spent(private: Mapping[str, Any]) -> list[tuple[str, int]]:
    if "spent" in private:
        return list(private["spent"].items())
    return [] if private["token"] is None else [(private["token"], 1)]


_FOLDS: Final[Mapping[str, Callable[[Mapping[str, Any]], list[Operation]]]] = MappingProxyType(
    {
        "tenant.created": _created("tenants"),
        "tenant.deleted": _deleted("tenants"),
        "pool.created": _created("pools"),
        "pool.deleted": _deleted("pools"),
        "site.created": _created("sites"),
        "site.deleted": _deleted("sites"),
        "token.created": _created("tokens"),
        "token.revoked": _changed("tokens"),
        "node.joined": _joined,
        "node.renewed": _renewed,
        "node.key.conflict": _changed("node_certs"),
        "node.certificate.revoked": _changed("node_certs"),
        "node.evicted": _node_changed,
        "node.banned": _node_changed,
        "node.unbanned": _node_changed,
        "node.retired": _node_changed,
        "node.deleted": _node_changed,
        "node.activated": _node_changed,
        "node.command.enqueued": _created("node_commands"),
        "node.command.dispatched": _created("node_commands"),
        "node.command.refused": _created("node_commands"),
        "node.command.cancelled": _created("node_commands"),
        "node.command.expired": _created("node_commands"),
        "node.command.finished": _created("node_commands"),
        # What else it takes away is taken from the events before it.
        "node.purged": _changed("nodes"),
        "node.reclaim.granted": _created("reclaim_grants"),
        "reclaim.revoked": _changed("reclaim_grants"),
        "ban.added": _created("bans"),
        "ban.removed": _deleted("bans"),
        "join.waiting": _created("join_requests"),
        "join.approved": _changed("join_requests"),
        "join.rejected": _changed("join_requests"),
        "join.expired": _changed("join_requests"),
        "image.created": _created("images"),
        "image.revoked": _changed("images"),
        "discovery-site.created": _created("discovery_sites"),
        "discovery-site.revoked": _changed("discovery_sites"),
        "cloud-account.created": _created("cloud_accounts"),
        "cloud-account.revoked": _changed("cloud_accounts"),
        "cloud-account.deleted": _deleted("cloud_accounts"),
        # Files, and no rows.
        "anchors.imported": _nothing,
        "anchors.reloaded": _nothing,
        "trust.rotated": _nothing,
        "tpm-endorsement.created": _created("tpm_endorsements"),
        "tpm-endorsement.revoked": _changed("tpm_endorsements"),
        "tpm-policy.set": _created("tpm_policies"),
        "tpm-policy.deleted": _deleted("tpm_policies"),
        "operator-token.created": _created("operator_tokens"),
        "operator-token.revoked": _changed("operator_tokens"),
    }
)
