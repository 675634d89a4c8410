"""Every error that the gateway answers: RFC 9457 problem details, all of them constant.

Nothing of what was sent, and nothing that another service said, is ever in an answer.
"""

from enum import Enum
from http import HTTPStatus

from starlette.responses import Response

from watchword.schemas.canonical import canonical

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:watchword:problem:"


class Problem(Enum):
    """One kind of error: status, the last part of its type, and a sentence."""

    MALFORMED = (400, "malformed", "The HTTP request cannot be read.")
    BAD_PARAMETER = (400, "bad-parameter", "A query parameter is not usable.")
    UNDECODABLE = (400, "undecodable", "The body is not a join request in its canonical form.")
    CSR_MALFORMED = (400, "csr-malformed", "The CSR cannot be parsed, or is too large.")
    CSR_SIGNATURE = (400, "csr-signature", "The CSR is not signed by its own key.")
    WEAK_KEY = (400, "weak-key", "The key's kind or size is not accepted.")
    NOT_FOUND = (404, "not-found", "There is nothing at this address.")
    METHOD_NOT_ALLOWED = (405, "method-not-allowed", "The method is not one of this address.")
    TIMEOUT = (408, "timeout", "The body did not arrive in time.")
    TOO_LARGE = (413, "too-large", "The body is larger than a join request may be.")
    MEDIA_TYPE = (415, "media-type", "A join request is application/json without an encoding.")
    TOO_MANY_REQUESTS = (429, "too-many-requests", "This address sends too much. Try again later.")
    TOO_MANY_WAITERS = (429, "too-many-waiters", "This address has too many open polls.")
    HEADERS_TOO_LARGE = (431, "headers-too-large", "The headers are too many or too large.")
    INTERNAL = (500, "internal", "The gateway failed. Try again later.")
    UNAVAILABLE = (503, "unavailable", "The service cannot take this now. Try again later.")
    NOT_YET_KNOWN = (503, "not-yet-known", "The document is not known yet. Try again later.")
    BUSY = (503, "busy", "The gateway is busy. Try again later.")

    def __init__(self, status: int, slug: str, detail: str) -> None:
        """Write the body once."""
        self.status = status
        self.slug = slug
        self.detail = detail
        self.body = canonical(
            {
                "type": TYPE_PREFIX + slug,
                "title": HTTPStatus(status).phrase,
                "status": status,
                "detail": detail,
            }
        )


class Rejected(Exception):
    """The request ends with a problem."""

    def __init__(
        self, problem: Problem, *, retry_after_s: int | None = None, allow: str | None = None
    ) -> None:
        """Name the problem; `allow` are the methods of a 405."""
        super().__init__(problem.slug)
        self.problem = problem
        self.retry_after_s = retry_after_s
        self.allow = allow


def problem_response(rejected: Rejected) -> Response:
    """Return the answer."""
    headers = {"Cache-Control": "no-store"}
    if rejected.retry_after_s is not None:
        headers["Retry-After"] = str(rejected.retry_after_s)
    if rejected.allow is not None:
        headers["Allow"] = rejected.allow
    problem = rejected.problem
    return Response(problem.body, problem.status, headers, media_type=MEDIA_TYPE)


def raw_response(problem: Problem, *, retry_after_s: int | None = None) -> bytes:
    """Return the answer as bytes of HTTP/1.1, for a connection that has no request yet."""
    retry = "" if retry_after_s is None else f"Retry-After: {retry_after_s}\r\n"
    head = (
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n"
        f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(problem.body)}\r\n{retry}"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + problem.body
