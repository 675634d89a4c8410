"""What answers look like. An answer has the fields of its shape and no others, whatever the row has: no hash of a secret leaves."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
Shape = Mapping[str, Json]
"""JSON Schemas by the name of the column."""

TEXT: Json = {"type": "string"}
WHOLE: Json = {"type": "integer"}
FLAG: Json = {"type": "boolean"}
ID: Json = {"type": "string", "format": "uuid"}
TIME: Json = {"type": "string", "format": "date-time"}
HEX: Json = {"type": "string", "pattern": "^[0-9a-f]*$"}
TEXTS: Json = {"type": "array", "items": TEXT}
OBJECT: Json = {"type": "object"}
OBJECTS: Json = {"type": "array", "items": OBJECT}
COUNTS: Json = {"type": "array", "items": WHOLE}


def maybe(schema: Json) -> Json:
    """Return the schema of a value that may be null."""
    return {**schema, "type": [schema["type"], "null"]}


PLACE: Shape = {"tenant": TEXT, "pool": TEXT, "site": maybe(TEXT), "role": TEXT}

CHANGED_NODE: Shape = {"id": ID, "state": TEXT, "version": WHOLE, **PLACE}

NODE: Shape = {
    **CHANGED_NODE,
    "attestor": TEXT,
    "token_id": maybe(TEXT),
    "node_key_uri": maybe(TEXT),
    "generation": WHOLE,
    "joined_at": TIME,
    "updated_at": TIME,
    "not_after": maybe(TIME),
}

NODE_IN_FULL: Shape = {name: schema for name, schema in NODE.items() if name != "not_after"} | {
    "hardware_key": maybe(TEXT),
    "certificates": OBJECTS,
    "bindings": OBJECTS,
    "subjects": OBJECTS,
    "audit": OBJECTS,
}

REQUEST: Shape = {
    "id": ID,
    "state": TEXT,
    "version": WHOLE,
    "attestor": TEXT,
    **PLACE,
    "csr_sha256": HEX,
    "requested_at": TIME,
    "expires_at": TIME,
    "grants": OBJECT,
    "facts": OBJECT,
    "unproven_claims": OBJECT,
    "request_id": TEXT,
    "decided_at": maybe(TIME),
    "decided_by": maybe(TEXT),
    "comment": maybe(TEXT),
}

REQUEST_IN_FULL: Shape = {**REQUEST, "audit": OBJECTS}

DECIDED: Shape = {"id": ID, "state": TEXT, "version": WHOLE, **PLACE, "csr_sha256": HEX}

BAN: Shape = {
    "subject": HEX,
    "kind": TEXT,
    "value": TEXT,
    "banned_at": TIME,
    "who": TEXT,
    "why": TEXT,
}

BANNED: Shape = {"bans": OBJECTS, "nodes": OBJECTS, "requests": OBJECTS}

REVOKED_TOKEN: Shape = {
    "id": TEXT,
    **PLACE,
    "uses_total": WHOLE,
    "uses_left": WHOLE,
    "expires_at": maybe(TIME),
    "expect": OBJECT,
    "allow_reclaim": FLAG,
    "allowed_kinds": maybe(TEXTS),
    "created_at": TIME,
    "created_by": TEXT,
    "revoked_at": maybe(TIME),
}

TOKEN: Shape = {**REVOKED_TOKEN, "state": TEXT}

NEW_TOKEN: Shape = {**REVOKED_TOKEN, "token": TEXT}

RECLAIM: Shape = {
    "id": ID,
    "node_id": ID,
    "tenant": TEXT,
    "attestor": TEXT,
    "kind": TEXT,
    "value": TEXT,
    "state": TEXT,
    "expires_at": TIME,
    "granted_at": TIME,
    "granted_by": TEXT,
    "why": TEXT,
    "used_at": maybe(TIME),
}

COMMAND: Shape = {
    "id": ID,
    "node_id": ID,
    "tenant": TEXT,
    "kind": TEXT,
    "payload_sha256": HEX,
    "payload_bytes": WHOLE,
    "state": TEXT,
    "version": WHOLE,
    "reason": maybe(TEXT),
    "exit_status": maybe(WHOLE),
    "enqueued_at": TIME,
    "enqueued_by": TEXT,
    "why": TEXT,
    "expires_at": TIME,
    "dispatched_at": maybe(TIME),
    "certificate_serial": maybe(HEX),
    "ended_at": maybe(TIME),
}

REFUSAL: Shape = {
    "id": WHOLE,
    "type": TEXT,
    "attestor": TEXT,
    "reason": TEXT,
    "tenant": TEXT,
    "role": maybe(TEXT),
    "request_id": maybe(TEXT),
    "request_sha256": HEX,
    "csr_sha256": maybe(HEX),
    "hardware_key_sha256": maybe(HEX),
    "topic": TEXT,
    "partition": WHOLE,
    "offset": WHOLE,
    "worker": TEXT,
    "published": FLAG,
    "occurred_at": TIME,
    "event_id": maybe(ID),
    "tried_sha256": maybe(HEX),
    "address": maybe(TEXT),
}

REFUSAL_IN_FULL: Shape = {
    **REFUSAL,
    "refusal": TEXT,
    "code": TEXT,
    "severity": TEXT,
    "attack": FLAG,
    "sentence": TEXT,
    "what_to_do": TEXT,
    "refused_in_a_day": maybe(OBJECT),
    "nodes": OBJECTS,
}

TOP: Shape = {
    "by": TEXT,
    "what": maybe(TEXT),
    "recorded": WHOLE,
    "published": WHOLE,
    "distinct_csrs": WHOLE,
    "distinct_hardware_keys": WHOLE,
    "first_time": TIME,
    "last_time": TIME,
}

AUDIT: Shape = {
    "id": WHOLE,
    "at": TIME,
    "who": TEXT,
    "action": TEXT,
    "target": TEXT,
    "why": TEXT,
    "detail": OBJECT,
}

OVERVIEW: Shape = {
    "now": TIME,
    "waiting": WHOLE,
    "oldest_waiting": maybe(TIME),
    "newest_waiting": maybe(TIME),
    "joined": WHOLE,
    "refused": WHOLE,
    "suppressed": WHOLE,
    "certificates_ending": WHOLE,
    "nodes": OBJECT,
    "joined_by_5_minutes": COUNTS,
    "refused_by_5_minutes": COUNTS,
    "lag_records": maybe(WHOLE),
    "lag_problem": maybe(TEXT),
}
