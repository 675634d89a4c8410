"""Refusals as documents of the Elastic Common Schema: for exports, and what the shipped pipelines make.

A pure function of the native event. Names and values are ECS's own; what it has no place for stands under
`labels`, whose values are text. https://www.elastic.co/guide/en/ecs/current/index.html
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

ECS_VERSION = "9.0.0"
DATASET = "watchword.refusals"

_SEVERITIES = {"low": 21, "medium": 47, "high": 73}
_WINDOW = "security.join.refused.window"
_ALERT = "security.join.alert"
_ACTIONS = {
    "security.join.refused": "join-refused",
    "security.join.invalid": "join-invalid",
    _WINDOW: "joins-refused",
    _ALERT: "join-alert",
}
_LABELS = (
    "attestor",
    "role",
    "csrSha256",
    "requestSha256",
    "triedSha256",
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
    "kind",
    "subjects",
    "refusals",
    "examples",
)


def to_ecs(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ECS document of a native event: a refusal, what was not understood, a summary, an alert.

    Raises `KeyError` or `ValueError` if it is none of these.
    """
    kind: str = event["type"]
    action = _ACTIONS[kind]
    key, csr = event.get("claimedHardwareKeySha256"), event.get("csrSha256")
    severity = event.get("severity", "medium")
    found: dict[str, Any] = {
        "@timestamp": event["time"],
        "ecs": {"version": ECS_VERSION},
        "event": {
            "id": event["id"],
            "kind": "alert" if kind == _ALERT or severity == "high" else "event",
            "category": ["iam"],
            "type": ["creation"],
            "action": action,
            "outcome": "failure",
            "dataset": DATASET,
            "module": "watchword",
            "provider": "watchword",
            "severity": _SEVERITIES[severity],
        },
        "organization": {"id": event["tenant"]},
        "service": {"name": "watchword-verifier", "type": "watchword"},
        "labels": _labels(event),
    }
    if event.get("refusal"):
        found["event"]["reason"] = event["refusal"]
    if event.get("code"):
        found["event"]["code"] = event["code"]
    if event.get("attestor"):
        found["rule"] = {"name": event["attestor"], "ruleset": "attestor"}
    if event.get("sentence"):
        found["message"] = event["sentence"]
    if key:
        found["device"] = {"id": f"claimed:sha256:{key}"}
    if hashes := [digest for digest in (csr, key) if digest]:
        found["related"] = {"hash": hashes}
    if event.get("requestId"):
        found["transaction"] = {"id": event["requestId"]}
    if event.get("worker"):
        found["service"]["node"] = {"name": event["worker"]}
    if event.get("claimedAddress"):
        found["source"] = {"address": event["claimedAddress"], "ip": event["claimedAddress"]}
        found.setdefault("related", {})["ip"] = [event["claimedAddress"]]
    if kind in (_WINDOW, _ALERT):
        found["event"]["start"], found["event"]["end"] = event["periodStart"], event["periodEnd"]
    return found


def _labels(event: Mapping[str, Any]) -> dict[str, str]:
    """Return what ECS has no place for. `labels` are keywords: text, and no list."""
    labels: dict[str, str] = {}
    for name in _LABELS:
        value: Any = event.get(name)
        if value is None:
            continue
        if isinstance(value, list | tuple):
            value = ",".join(cast("Sequence[str]", value))
        labels[_snake(name)] = str(value)
    return labels


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
