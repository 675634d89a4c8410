"""The schemas as documents: JSON Schema for each record, and AsyncAPI 3 for the topics.

Pure: `references()` gives file names and contents; whoever writes them compares first.
"""

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from watchword.schemas import topics
from watchword.schemas.commands import Command, Reports
from watchword.schemas.events import (
    JoinAlert,
    JoinDecided,
    JoinRefused,
    JoinWaiting,
    NodeCertificateRevoked,
    NodeChanged,
    NodeCommand,
    NodeJoined,
    NodeKeyConflict,
    NodeReclaimGranted,
    NodeRenewed,
    Recorded,
    RefusalWindow,
    TrustRotated,
)
from watchword.schemas.keyset import KeySet, TrustBundle
from watchword.schemas.requests import Claims, JoinRequest
from watchword.schemas.responses import JoinResponse, SealedResponse

RECORDS: dict[str, type[BaseModel]] = {
    "join-request": JoinRequest,
    "join-response": JoinResponse,
    "sealed-response": SealedResponse,
    "claims": Claims,
    "command": Command,
    "command-reports": Reports,
    "key-set": KeySet,
    "trust-bundle": TrustBundle,
    "node.joined": NodeJoined,
    "node.renewed": NodeRenewed,
    "node.key.conflict": NodeKeyConflict,
    "node.changed": NodeChanged,
    "node.certificate.revoked": NodeCertificateRevoked,
    "node.reclaim.granted": NodeReclaimGranted,
    "node.command": NodeCommand,
    "join.waiting": JoinWaiting,
    "join.decided": JoinDecided,
    "security.join.refused": JoinRefused,
    "security.join.refused.window": RefusalWindow,
    "security.join.alert": JoinAlert,
    "trust.rotated": TrustRotated,
    "recorded": Recorded,
}
"""What is written down, by the name of its schema."""

_MESSAGES: dict[str, tuple[str, ...]] = {
    topics.JOIN_REQUESTS: ("join-request",),
    topics.JOIN_RESPONSES: ("join-response", "sealed-response"),
    topics.NODE_EVENTS: (
        "node.joined",
        "node.renewed",
        "node.key.conflict",
        "node.changed",
        "node.certificate.revoked",
        "node.reclaim.granted",
        "node.command",
        "join.waiting",
        "join.decided",
        "trust.rotated",
    ),
    topics.JOIN_REFUSED: (
        "security.join.refused",
        "security.join.refused.window",
        "security.join.alert",
    ),
    topics.TRUST_BUNDLE: ("key-set", "trust-bundle"),
}

_SIGNED = frozenset(("join-response", "sealed-response", "key-set", "trust-bundle", "command"))


def json_schema(record: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a record as it stands on the wire."""
    schema = record.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document of the topics."""
    _, definitions = models_json_schema(
        [(record, "validation") for record in RECORDS.values()],
        by_alias=True,
        ref_template="#/components/schemas/{model}",
    )
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for topic in topics.TOPICS:
        names = _MESSAGES.get(topic.name, ())
        channel = topic.name.replace(".", "_")
        channels[channel] = {
            "address": topic.name,
            "description": f"Key: {topic.key}. Value: {topic.value}.",
            "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
            "bindings": {
                "kafka": {
                    "topic": topic.name,
                    "partitions": topic.partitions,
                    "bindingVersion": "0.5.0",
                }
            },
        }
        operations[f"read_{channel}"] = {
            "action": "receive",
            "channel": {"$ref": f"#/channels/{channel}"},
        }
    for name, record in RECORDS.items():
        messages[name] = {
            "name": name,
            "contentType": "application/jose" if name in _SIGNED else "application/json",
            "payload": {"$ref": f"#/components/schemas/{record.__name__}"},
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Watchword",
            "version": "1",
            "description": "May this machine join, and as which node?",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": definitions["$defs"]},
    }


def references() -> dict[str, str]:
    """Return the generated reference files, by path below `docs/reference`."""
    files = {
        f"schemas/{name}.json": _pretty(json_schema(record)) for name, record in RECORDS.items()
    }
    files["asyncapi.json"] = _pretty(asyncapi())
    return files


def _pretty(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
