"""What a purge leaves of a node's events: what a rebuild and the promises of section 2 need, and nothing of the machine. Pure.

Digests stay: of CSRs, keys, subjects that were bound or used up, requests. Names, values and certificates go.
"""

from collections.abc import Mapping
from typing import Any

from watchword.schemas.canonical import b64

PURGED = "purged"
"""Stands where a value was."""

EMPTY_SNAPSHOT = b"{}"


def redacted(event_type: str, private: Mapping[str, Any]) -> dict[str, Any]:
    """Return the private part of an event of a purged node, or of a join that it waited for."""
    match event_type:
        case "node.joined":
            node = {**private["node"], "hardware_key": None, "node_key_uri": None}
            return {
                **private,
                "node": node,
                "subjects": [],
                "certificate": _certificate(private["certificate"]),
            }
        case "node.renewed":
            return {**private, "certificate": _certificate(private["certificate"])}
        case "node.reclaim.granted" | "ban.added" | "ban.removed":
            return {**private, "row": {**private["row"], "value": PURGED}}
        case "join.waiting":
            nothing: dict[str, Any] = {"claims": {}, "facts": {}}
            row = {**private["row"], **nothing, "snapshot": b64(EMPTY_SNAPSHOT)}
            return {**private, "row": row}
        case _:
            return dict(private)


def _certificate(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "der": "", "node_key_uri": None}


def redacted_value(event_type: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public part: what was published, without the name of the node's key."""
    if event_type in ("node.joined", "node.renewed") and value.get("nodeKey") != "unattested":
        return {**value, "nodeKey": PURGED}
    if event_type in ("ban.added", "ban.removed"):
        return {**value, "detail": {**value["detail"], "value": PURGED}}
    return dict(value)
