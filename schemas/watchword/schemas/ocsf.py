"""Refusals as OCSF 1.5: Entity Management (3004), activity Enroll (6), status Failure; alerts as findings.

A projection of the native event, a pure function: what OCSF has a place for goes there, the rest of
ours under `unmapped`. Nothing in it comes from a machine but hashes and a checked address. https://schema.ocsf.io/1.5.0
"""

from collections.abc import Mapping
from typing import Any

from watchword.schemas.times import parse_rfc3339

VERSION = "1.5.0"
CLASS_UID = 3004
FINDING_UID = 2004
ENROLL = 6
TYPE_UID = CLASS_UID * 100 + ENROLL

_FAILURE, _DENIED, _REJECTED = 2, 2, 25
_DEVICE, _OTHER = 1, 99
_IP_ADDRESS, _HASH, _RESOURCE_UID = 2, 8, 10
_SEVERITIES = {"low": (2, "Low"), "medium": (3, "Medium"), "high": (4, "High")}
_WINDOW = "security.join.refused.window"
_ALERT = "security.join.alert"

_UNMAPPED = (
    "role",
    "code",
    "attack",
    "csrSha256",
    "triedSha256",
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
    "kind",
    "subjects",
    "subjectKind",
    "examples",
)


def to_ocsf(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OCSF event of a native one: a refusal, a request not understood, or a summary.

    An alert becomes a Detection Finding (2004), which is what OCSF has for conclusions from events.
    `event` is the JSON object as published. Raises `KeyError` or `ValueError` if it is none of these.
    """
    if event["type"] == _ALERT:
        return _finding(event)
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
    address = event.get("claimedAddress")
    if address:
        observables.append({"name": "src_endpoint.ip", "type_id": _IP_ADDRESS, "value": address})
    return {
        **({"src_endpoint": {"ip": address}} if address else {}),
        "severity_id": severity_id,
        "severity": severity,
        "status_detail": event.get("sentence") or event["refusal"],
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


def _finding(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an alert as Detection Finding, activity Create.

    https://schema.ocsf.io/1.5.0/classes/detection_finding
    """
    severity_id, severity = _SEVERITIES[event["severity"]]
    start, end = _milliseconds(event["periodStart"]), _milliseconds(event["periodEnd"])
    return {
        "activity_id": 1,
        "activity_name": "Create",
        "category_uid": 2,
        "category_name": "Findings",
        "class_uid": FINDING_UID,
        "class_name": "Detection Finding",
        "type_uid": FINDING_UID * 100 + 1,
        "type_name": "Detection Finding: Create",
        "time": _milliseconds(event["time"]),
        "severity_id": severity_id,
        "severity": severity,
        "status_id": 1,
        "status": "New",
        "message": event["sentence"],
        "count": max(1, event["refusals"]),
        "start_time": start,
        "end_time": end,
        "finding_info": {
            "uid": event["id"],
            "title": event["sentence"],
            "types": [event["kind"]],
            "created_time": _milliseconds(event["time"]),
            "first_seen_time": start,
            "last_seen_time": end,
        },
        "metadata": _metadata(event) | {"profiles": []},
        "unmapped": {name: event[name] for name in _UNMAPPED if event.get(name) is not None}
        | {name: event[name] for name in ("attestor", "refusal") if event.get(name)},
    }


def _milliseconds(text: str) -> int:
    return round(parse_rfc3339(text).timestamp() * 1000)
