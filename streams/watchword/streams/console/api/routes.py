"""The operations as HTTP resources: who calls, what is given, what is answered."""

import json
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

import structlog
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from watchword.handlers.errors import BadArgument, Denied, WatchwordError
from watchword.handlers.operators.api_tokens import access_by_token, parse_api_token
from watchword.handlers.operators.certificates import ClientCertificate, access_by_certificate
from watchword.handlers.operators.desk import Desk
from watchword.streams.console.api import PREFIX
from watchword.streams.console.api.catalogue import OPERATIONS
from watchword.streams.console.api.openapi import openapi_bytes
from watchword.streams.console.api.operation import Asked, Given, Lines, Operation, Page
from watchword.streams.console.api.shapes import Shape
from watchword.streams.console.client_certificates import certificate_of
from watchword.streams.console.forms import check_origin
from watchword.streams.console.office import Office
from watchword.streams.console.problems import Told, Unauthenticated, problem, told
from watchword.streams.result_json import SCHEMA_VERSION, camel, plain_json

_log = structlog.get_logger(__name__)

MAX_BODY_BYTES: Final = 1024 * 1024
_NO_STORE: Final = {"Cache-Control": "no-store"}


class _TooLarge(WatchwordError):
    """The body is too large."""


class _MediaType(WatchwordError):
    """A body is application/json."""


def api_routes(office: Office, origins: Collection[str]) -> list[BaseRoute]:
    """Return the routes below `/api/v1`. Browsers with a certificate are heard only from pages of these origins."""
    routes: list[BaseRoute] = [
        Route(f"{PREFIX}/openapi.json", _openapi, methods=["GET"]),
    ]
    by_path: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, []).append(operation)
    # A name that stands in the path goes before one that is a parameter.
    for path in sorted(by_path, key=lambda path: path.count("{")):
        endpoint = _Resource(office, origins, {one.method: one for one in by_path[path]})
        routes.append(Route(PREFIX + path, endpoint.answer, methods=_EVERY))
    return routes


_EVERY = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


async def _openapi(request: Request) -> Response:
    del request
    return Response(openapi_bytes(), media_type="application/json")


class _Resource:
    """One path, with an operation for each of its methods."""

    def __init__(
        self, office: Office, origins: Collection[str], operations: Mapping[str, Operation]
    ) -> None:
        self._office = office
        self._origins = origins
        self._operations = operations

    async def answer(self, request: Request) -> Response:
        """Answer a request; whatever goes wrong is a problem."""
        operation = self._operations.get(request.method)
        if operation is None:
            return problem(
                Told(405, "The method is not one of this address."),
                allow=", ".join(self._operations),
            )
        try:
            return await self._answer(request, operation)
        except ClientDisconnect:
            return Response(status_code=499, headers=_NO_STORE)
        except _TooLarge:
            return problem(Told(413, f"A body has at most {MAX_BODY_BYTES} bytes."))
        except _MediaType as error:
            return problem(Told(415, str(error)))
        except (WatchwordError, ValidationError) as error:
            said = told(error)
            if said.status >= 500:  # noqa: PLR2004 - HTTP's errors of ours
                _log.error("operation failed", operation=operation.id, error=str(error))
            return problem(said)

    async def _answer(self, request: Request, operation: Operation) -> Response:
        # 1. Whose token or certificate this is; nothing else is looked at before.
        # 2. What is given, and no more.
        # 3. The desk checks tenant and role, and does it.
        # 4. The fields of the answer's shape, and no others.

        # Step 1
        desk = await self._desk(request)

        # Step 2
        given = await _given(request, operation)

        # Step 3
        path = {name: str(value) for name, value in request.path_params.items()}
        result = await operation.run(Asked(desk, self._office, path), given)

        # Step 4
        match result:
            case Lines():
                return StreamingResponse(
                    _told_lines(result.lines), headers=_NO_STORE, media_type="application/x-ndjson"
                )
            case Page():
                items = [_shaped(row, operation.answers) for row in result.items]
                body = {"schemaVersion": SCHEMA_VERSION, "items": items, "next": result.next}
            case _:
                body = {"schemaVersion": SCHEMA_VERSION, **_shaped(result, operation.answers)}
        return Response(
            json.dumps(body, default=plain_json), headers=_NO_STORE, media_type="application/json"
        )

    async def _desk(self, request: Request) -> Desk:
        shown = certificate_of(request)
        if shown is not None and "Authorization" not in request.headers:
            return await self._desk_by_certificate(request, shown)
        kind, _, text = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise Unauthenticated
        try:
            access = await access_by_token(self._office.database, parse_api_token(text))
        except (BadArgument, Denied):
            message = "the API token is not known, was revoked or has expired"
            raise Unauthenticated(message) from None
        return self._office.desk(access)

    async def _desk_by_certificate(self, request: Request, shown: ClientCertificate) -> Desk:
        # A browser shows it whoever made it ask; a token has to be sent on purpose.
        check_origin(request, self._origins)
        try:
            found = await access_by_certificate(self._office.database, shown)
        except Denied as error:
            raise Unauthenticated(str(error)) from None
        return self._office.desk(found.access)


async def _given(request: Request, operation: Operation) -> Given:
    if operation.method == "GET":
        pairs = request.query_params.multi_items()
        given = dict(pairs)
        if len(given) < len(pairs):
            message = "a parameter was given twice"
            raise BadArgument(message)
        return operation.given.model_validate(given)
    content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise _MediaType
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _TooLarge
    return operation.given.model_validate_json(bytes(body))


async def _told_lines(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """Give the lines; where one fails the answer ends without its last chunk, so that it does not look whole."""
    try:
        async for line in lines:
            yield line
    except WatchwordError as error:
        _log.error("export was cut off", error=str(error))
        raise


def _shaped(row: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    return camel({name: row[name] for name in shape})
