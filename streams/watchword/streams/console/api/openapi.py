"""The description of the API, OpenAPI 3.1, made from its operations.

`docs/reference/operators-openapi.json` is its copy; `make docs` writes that again.
"""

import json
import re
from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from watchword.streams.console.api import PREFIX
from watchword.streams.console.api.catalogue import OPERATIONS
from watchword.streams.console.api.operation import Given, Nothing, Operation
from watchword.streams.console.problems import MEDIA_TYPE, SLUGS, TYPE_PREFIX
from watchword.streams.result_json import SCHEMA_VERSION, camel

Json = dict[str, Any]

_REF = "#/components/schemas/{model}"
_PART = re.compile(r"\{([a-z]+)\}")
_ALWAYS = (400, 401, 500, 503)
_SAID = {
    400: "Something that was given is not usable.",
    401: "There is no API token and no client certificate, or it is not usable.",
    403: "The role does not allow it, or a page of another origin asked with a certificate.",
    404: "There is no such thing, or it belongs to a tenant outside.",
    409: "Somebody else was first, it has changed since it was seen, or its state does not allow it; nothing was changed.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    500: "The console failed.",
    503: "PostgreSQL is away; nothing was half done.",
}


def openapi() -> Json:
    """Return the document."""
    bodies = {one.given for one in OPERATIONS if one.method == "POST" and one.given is not Nothing}
    references, definitions = models_json_schema(
        [(model, "validation") for model in sorted(bodies, key=_name)], ref_template=_REF
    )
    named = {model: reference for (model, _), reference in references.items()}
    paths: Json = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _of(
            operation, named.get(operation.given)
        )
    paths[f"{PREFIX}/openapi.json"] = {"get": _itself()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Watchword for operators",
            "version": "1",
            "description": "What operators do. Each token has one role (viewer, approver, admin) in one tenant or in "
            "the whole deployment; what is outside does not exist for it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}, {"certificate": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`watchword operators create`",
                },
                "certificate": {
                    "type": "mutualTLS",
                    "description": "`console.client_ca_file`, `watchword operators admit`; without an Authorization header",
                },
            },
            "schemas": {**definitions.get("$defs", {}), "Problem": _problem()},
        },
    }


def _name(model: type[Given]) -> str:
    return f"{model.__module__}.{model.__name__}"


def _of(operation: Operation, body: Json | None) -> Json:
    found: Json = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": f"Role: {operation.role}.",
        "responses": {"200": _answer(operation), **_problems(operation)},
    }
    parameters = [_part(name) for name in _PART.findall(operation.path)]
    if operation.method == "GET":
        parameters += _query(operation.given)
    if parameters:
        found["parameters"] = parameters
    if body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    return found


def _part(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query(model: type[Given]) -> list[Json]:
    schema = model.model_json_schema(ref_template=_REF)
    required = set(schema.get("required", ()))
    found: list[Json] = []
    for name, of_field in schema.get("properties", {}).items():
        inner = dict(of_field)
        inner.pop("title", None)
        said = inner.pop("description", None)
        one = {"name": name, "in": "query", "required": name in required, "schema": _plain(inner)}
        found.append(one if said is None else one | {"description": said})
    return found


def _plain(schema: Json) -> Json:
    """Return a parameter's schema without null: a parameter is there or not."""
    if "anyOf" in schema:
        found: list[Json] = [one for one in schema["anyOf"] if one != {"type": "null"}]
        return found[0]
    return schema


def _answer(operation: Operation) -> Json:
    if operation.is_lines:
        return {
            "description": "One event a line",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    shape = camel(operation.answers)
    item: Json = {
        "type": "object",
        "required": list(shape),
        "properties": shape,
        "additionalProperties": False,
    }
    version: Json = {"schemaVersion": {"const": SCHEMA_VERSION}}
    if operation.is_page:
        properties = {
            **version,
            "items": {"type": "array", "items": item},
            "next": {"type": ["string", "null"], "description": "Where the next page begins"},
        }
    else:
        properties = {**version, **shape}
    schema: Json = {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }
    return {"description": "Done", "content": {"application/json": {"schema": schema}}}


def _problems(operation: Operation) -> Json:
    statuses = {*_ALWAYS, 404}
    if operation.role != "viewer":
        statuses.add(403)
    if operation.method == "POST":
        statuses |= {409, 413, 415}
    return {
        str(status): {
            "description": _SAID[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted(statuses)
    }


def _itself() -> Json:
    return {
        "operationId": "getOpenapi",
        "summary": "This document",
        "security": [],
        "responses": {
            "200": {
                "description": "OpenAPI 3.1",
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        },
    }


def _problem() -> Json:
    return {
        "type": "object",
        "description": "Problem details (RFC 9457).",
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": False,
        "properties": {
            "type": {"type": "string", "enum": [TYPE_PREFIX + slug for slug in SLUGS.values()]},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
        },
    }


@cache
def openapi_bytes() -> bytes:
    """Return the document as it is served and stored."""
    return json.dumps(openapi(), indent=2, ensure_ascii=False).encode() + b"\n"
