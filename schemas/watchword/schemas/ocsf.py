"""Refusals as OCSF 1.5: Entity Management (3004), activity Enroll (6), status Failure.

A projection of the native event, a pure function: what OCSF has a place for goes there, the rest of
ours under `unmapped`. Nothing in it comes from a machine but hashes. https://schema.ocsf.io/1.5.0
"""

from collections.abc import Mapping
from typing import Any

from watchword.schemas.times import parse_rfc3339

VERSION = "1.5.0"
CLASS_UID = 3004
ENROLL = 6
TYPE_UID = CLASS_UID * 100 + ENROLL

_FAILURE, _DENIED, _REJECTED = 2, 2, 25
_DEVICE, _OTHER = 1, 99
_HASH, _RESOURCE_UID = 8, 10
_SEVERITIES = {"low": (2, "Low"), "medium": (3, "Medium"), "high": (4, "High")}
_WINDOW = "security.join.refused.window"

_UNMAPPED = (
    "role",
    "code",
    "csrSha256",
    "requestSha256",
    "topic",
    "partition",
    "offset",
    "phase",
    "recorded",
    "published",
    "suppressed",
    "distinctCsrs",
    "distinctClaimedHardwareKeys",
    "limit",
    "limitSeconds",
    "requestIds",
)


def to_ocsf(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OCSF event of a native one: a refusal, a request not understood, or a summary.

    `event` is the JSON object as published. Raises `KeyError` or `ValueError` if it is none of these.
    """
    return {
        "activity_id": ENROLL,
        "activity_name": "Enroll",
        "category_uid": 3,
        "category_name": "Identity & Access Management",
        "class_uid": CLASS_UID,
        "class_name": "Entity Management",
        "type_uid": TYPE_UID,
        "type_name": "Entity Management: Enroll",
        "time": _milliseconds(event["time"]),
        "status_id": _FAILURE,
        "status": "Failure",
        "status_code": event["refusal"],
        "action_id": _DENIED,
        "action": "Denied",
        "disposition_id": _REJECTED,
        "disposition": "Rejected",
        "policy": {"name": event["attestor"], "uid": f"attestor/{event['attestor']}"},
        "metadata": _metadata(event),
        "unmapped": {name: event[name] for name in _UNMAPPED if event.get(name) is not None}
        | {"attestor": event["attestor"], "reason": event["reason"]},
        **(_of_window(event) if event["type"] == _WINDOW else _of_machine(event)),
    }


def _metadata(event: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "version": VERSION,
        "profiles": ["security_control"],
        "product": {"name": "Watchword", "vendor_name": "Watchword"},
        "uid": event["id"],
        "event_code": event["type"],
        "tenant_uid": event["tenant"],
    }
    if event.get("requestId"):
        found["correlation_uid"] = event["requestId"]
    if event.get("worker"):
        found["log_provider"] = event["worker"]
    return found


def _of_machine(event: Mapping[str, Any]) -> dict[str, Any]:
    severity_id, severity = _SEVERITIES[event["severity"]]
    key, csr = event.get("claimedHardwareKeySha256"), event.get("csrSha256")
    # The machine is known by what it claims, else by its CSR, else by the bytes that it sent.
    uid = (
        f"claimed:sha256:{key}"
        if key
        else f"csr:sha256:{csr}"
        if csr
        else f"request:sha256:{event['requestSha256']}"
    )
    observables = [{"name": "entity.uid", "type_id": _RESOURCE_UID, "value": uid}]
    if csr:
        observables.append({"name": "unmapped.csrSha256", "type_id": _HASH, "value": csr})
    return {
        "severity_id": severity_id,
        "severity": severity,
        "is_alert": event["severity"] == "high",
        "entity": {
            "type_id": _DEVICE,
            "type": "Device",
            "uid": uid,
            "device": {"type_id": 0, "type": "Unknown", "uid": uid, "is_managed": False},
        },
        "observables": observables,
    }


def _of_window(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a summary: `count` events between two times, of machines that it does not name."""
    return {
        "severity_id": _SEVERITIES["medium"][0],
        "severity": _SEVERITIES["medium"][1],
        "is_alert": False,
        "count": max(1, event["suppressed"]),
        "start_time": _milliseconds(event["periodStart"]),
        "end_time": _milliseconds(event["periodEnd"]),
        "entity": {
            "type_id": _OTHER,
            "type": "Refused machines",
            "name": event["refusal"],
        },
    }


def _milliseconds(text: str) -> int:
    return round(parse_rfc3339(text).timestamp() * 1000)
