"""The description of the gateway's API, OpenAPI 3.1.

`docs/reference/openapi.json` is its copy; `make docs` writes that again.
"""

import json
from functools import cache
from typing import Any

from watchword.schemas.requests import MAX_REQUEST_BYTES, JoinRequest
from watchword.streams.gateway.options import Timings
from watchword.streams.gateway.problems import MEDIA_TYPE, TYPE_PREFIX, Problem

Json = dict[str, Any]

_ALWAYS = (
    Problem.MALFORMED,
    Problem.TOO_MANY_REQUESTS,
    Problem.HEADERS_TOO_LARGE,
    Problem.INTERNAL,
    Problem.BUSY,
)
_OF_SUBMIT = (
    Problem.UNDECODABLE,
    Problem.CSR_MALFORMED,
    Problem.CSR_SIGNATURE,
    Problem.WEAK_KEY,
    Problem.TIMEOUT,
    Problem.TOO_LARGE,
    Problem.MEDIA_TYPE,
    Problem.UNAVAILABLE,
)
_OF_POLL = (Problem.BAD_PARAMETER, Problem.NOT_FOUND, Problem.TOO_MANY_WAITERS)

_RETRY_AFTER: Json = {
    "description": "Seconds until another try makes sense (RFC 9110, 10.2.3).",
    "schema": {"type": "integer", "minimum": 0},
}
_ETAG: Json = {"description": "Names these bytes (RFC 9110, 8.8.3).", "schema": {"type": "string"}}
_LATER: Json = {"headers": {"Retry-After": _RETRY_AFTER}}


def openapi() -> Json:
    """Return the document."""
    max_wait_s = Timings().max_wait_s
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Watchword gateway",
            "version": "1",
            "description": "How a machine asks to join. Requests are sealed and answers are signed: "
            "the gateway can read or forge neither.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/v1/joins": {"post": _submit()},
            "/v1/joins/{digest}": {"get": _poll(max_wait_s)},
            "/v1/keys": {
                "get": _document(
                    "getKeys", "The signed key set, with the key to seal to", "application/jose"
                )
            },
            "/v1/trust-bundle": {
                "get": _document(
                    "getTrustBundle", "The signed certificates of the node CA", "application/jose"
                )
            },
            "/v1/crl": {
                "get": _document(
                    "getCrl",
                    "The certificate revocation list, DER; 404 if none is published",
                    "application/pkix-crl",
                    missing=Problem.NOT_FOUND,
                )
            },
            "/v1/crl/{ca}": {
                "get": {
                    "parameters": [
                        {
                            "name": "ca",
                            "in": "path",
                            "required": True,
                            "description": "The CA's name: `ca-` and the beginning of its subject "
                            "key identifier, 16 hexadecimal digits",
                            "schema": {"type": "string", "pattern": "^ca-[0-9a-f]{16}$"},
                        }
                    ],
                    **_document(
                        "getCrlOfCa",
                        "The list of one CA, also of one that issues no more; 404 if none is published",
                        "application/pkix-crl",
                        missing=Problem.NOT_FOUND,
                    ),
                }
            },
            "/v1/openapi.json": {
                "get": {
                    "operationId": "getOpenapi",
                    "summary": "This document",
                    "responses": {
                        "200": {
                            "description": "OpenAPI 3.1",
                            "content": {"application/json": {"schema": {"type": "object"}}},
                        },
                        **_problems(*_ALWAYS),
                    },
                }
            },
        },
        "components": {
            "schemas": {"JoinRequest": _join_request(), "Problem": _problem_schema()},
        },
    }


def _submit() -> Json:
    return {
        "operationId": "submitJoin",
        "summary": "Hand in a request",
        "description": "Checks what needs no secret, gives the bytes to Kafka unchanged, and "
        "answers when all in-sync replicas have them. Sending the same bytes again is harmless.",
        "requestBody": {
            "required": True,
            "description": f"Canonical JSON (RFC 8785), at most {MAX_REQUEST_BYTES} bytes. "
            "A `traceparent` header is linked to, never adopted.",
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/JoinRequest"}}
            },
        },
        "responses": {
            "202": {
                "description": "The request is in the log",
                "headers": {
                    "Location": {
                        "description": "Where the answer will be: /v1/joins/ and the SHA-256 of "
                        "the request's bytes, hex",
                        "schema": {"type": "string"},
                    },
                    "Retry-After": _RETRY_AFTER,
                },
            },
            **_problems(*_ALWAYS, *_OF_SUBMIT),
        },
    }


def _poll(max_wait_s: int) -> Json:
    return {
        "operationId": "pollJoin",
        "summary": "Ask for an answer",
        "description": "Answers are given in the order in which they arrived. The gateway cannot "
        "check them: a client that does not believe one asks again with its tag in `after`. A "
        "request that is not known looks as one that is pending.",
        "parameters": [
            {
                "name": "digest",
                "in": "path",
                "required": True,
                "description": "SHA-256 of the request's bytes",
                "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            },
            {
                "name": "wait",
                "in": "query",
                "description": f"Seconds to wait for an answer, or up to a fifth less; more than {max_wait_s} is taken "
                f"for {max_wait_s}. A gateway that is busy may take longer.",
                "schema": {"type": "integer", "minimum": 0, "default": 0},
            },
            {
                "name": "after",
                "in": "query",
                "description": "The tag of the last answer that was seen: the ETag's 32 hex "
                "digits, without quotes. A tag that is not known counts as none.",
                "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            },
        ],
        "responses": {
            "200": {
                "description": "An answer, as a worker signed it",
                "headers": {"ETag": _ETAG},
                "content": {"application/jose": {"schema": {"type": "string"}}},
            },
            "202": {"description": "No answer yet, or no such request", **_LATER},
            **_problems(*_ALWAYS, *_OF_POLL),
        },
    }


def _document(
    operation_id: str,
    summary: str,
    media_type: str,
    *,
    missing: Problem = Problem.NOT_YET_KNOWN,
) -> Json:
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [
            {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}},
        ],
        "responses": {
            "200": {
                "description": "The last one that was published",
                "headers": {"ETag": _ETAG, "Cache-Control": {"schema": {"type": "string"}}},
                "content": {media_type: {}},
            },
            "304": {"description": "It is still the one named in If-None-Match"},
            **_problems(*_ALWAYS, missing),
        },
    }


def _problems(*problems: Problem) -> Json:
    by_status: dict[int, list[Problem]] = {}
    for problem in problems:
        by_status.setdefault(problem.status, []).append(problem)
    return {
        str(status): {
            "description": " ".join(f"`{p.slug}`: {p.detail}" for p in by_status[status]),
            **(_LATER if status in (429, 503) else {}),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted(by_status)
    }


def _problem_schema() -> Json:
    return {
        "type": "object",
        "description": "Problem details (RFC 9457). All of it is constant for a type.",
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": False,
        "properties": {
            "type": {"type": "string", "enum": [TYPE_PREFIX + p.slug for p in Problem]},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
        },
    }


def _join_request() -> Json:
    schema = JoinRequest.model_json_schema(by_alias=True)
    schema["description"] = (
        "The request; see docs/reference/gateway.md. All fields are always there."
    )
    return schema


@cache
def openapi_bytes() -> bytes:
    """Return the document as it is served and stored."""
    return json.dumps(openapi(), indent=2, ensure_ascii=False).encode() + b"\n"
