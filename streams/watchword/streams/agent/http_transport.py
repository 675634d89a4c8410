"""Through a gateway, over HTTP: the usual way.

| | |
|---|---|
| `POST /v1/joins` | 202: the request is in the log |
| `GET /v1/joins/{SHA-256 of the request, hex}?wait=S&after=T` | 200 with an answer and its tag in `ETag`; 202: none yet |
| `GET /v1/keys`, `/v1/trust-bundle`, `/v1/crl` | the published documents |

A gateway can be anybody: bodies are bounded, redirects are not followed, and what it says decides
only how long to wait. Requests are sealed and answers signed, so TLS adds privacy about who joins,
and no more. That is why its certificate's dates are not checked while the machine's own clock is
proven wrong (`clock`): a machine that woke up in 1970 would find every certificate not yet valid.
"""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from re import compile as pattern
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from watchword.handlers.crypto.jws import MAX_TOKEN_BYTES
from watchword.handlers.errors import BadArgument
from watchword.schemas.traceparent import TRACEPARENT
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import TransportRefused, TransportUnavailable
from watchword.streams.agent.tracing import traceparent
from watchword.streams.agent.transport import Conversation

if TYPE_CHECKING:
    import httpx

_CONNECT_S = 10.0
_ANSWER_S = 30.0
"""How long a gateway may think, beyond the wait that it was asked for."""
_MAX_DOCUMENT_BYTES = 1024 * 1024
_MAX_CRL_BYTES = 16 * 1024 * 1024
_MIN_POLL_S = 1.0
"""A gateway that answers at once that there is nothing is asked no more often than this."""
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the standard library has no name for."""

_OK = 200
_ACCEPTED = 202
_NO_CONTENT = 204
_NOT_MODIFIED = 304
_NOT_FOUND = 404
_TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))

_TAG = pattern(r'(?:W/)?"([0-9a-f]{32})"')
_SECONDS = pattern(r"[0-9]{1,9}")


class HttpTransport:
    """A client of one gateway. Opens its first connection when it is first used."""

    answers_are_shared = False

    def __init__(
        self,
        url: str,
        *,
        ca_file: Path | None = None,
        use_environment_proxy: bool = False,
        clock: AgentClock | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Name the gateway, `https://host[:port][/prefix]`.

        `ca_file` (PEM) takes the place of the system's certificates. A proxy that the environment
        names is used only if told so. `clock` is for tests.

        Raises:
            BadArgument: no URL of that kind.
        """
        self._url = _checked_url(url)
        self._ca_file = ca_file
        self._use_environment = use_environment_proxy
        self.clock = clock or AgentClock()
        self._pace = pace or Pace()
        self._client: httpx.AsyncClient | None = None
        self._ignores_dates = False

    @asynccontextmanager
    async def conversation(self, csr_sha256: bytes) -> AsyncGenerator[Conversation]:
        """Open a conversation: nothing has to be listened to, since a gateway keeps answers."""
        del csr_sha256
        yield _HttpConversation(self, self._pace)

    async def key_set(self) -> bytes:
        """See `Transport.key_set`."""
        return await self._document("/v1/keys")

    async def trust_bundle(self) -> bytes:
        """See `Transport.trust_bundle`."""
        return await self._document("/v1/trust-bundle")

    async def crl(self, ca: str | None = None) -> bytes | None:
        """See `Transport.crl`."""
        path = "/v1/crl" if ca is None else f"/v1/crl/{ca}"
        reply = await self.call("GET", path, limit=_MAX_CRL_BYTES)
        if reply.status == _NOT_FOUND:
            return None
        return reply.required(_OK).body

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        limit: int,
        body: bytes | None = None,
        params: dict[str, str] | None = None,
        wait_s: float = 0.0,
        trace: str | None = None,
    ) -> "Reply":
        """Return the gateway's reply, whose body has at most `limit` bytes; `trace` goes along as `traceparent`.

        Raises:
            TransportUnavailable: no reply, or one that asks to try again.
            TransportRefused: the body is larger.
        """
        import httpx  # noqa: PLC0415 - 100 ms that a command without a gateway need not pay

        client = await self._connected()
        headers = {} if body is None else {"Content-Type": "application/json"}
        if trace is not None:
            headers[TRACEPARENT] = trace
        try:
            async with client.stream(
                method,
                path,
                content=body,
                params=params,
                headers=headers,
                timeout=httpx.Timeout(wait_s + _ANSWER_S, connect=_CONNECT_S),
            ) as response:
                content = await _read(response, limit)
        except httpx.HTTPError as error:
            message = f"{self._url}: {_in_words(error)}"
            raise TransportUnavailable(message) from None
        self._take_hint(response.headers.get("Date"))
        retry_after_s = _retry_after(response.headers.get("Retry-After"), self.clock)
        if response.status_code in _TRY_AGAIN:
            message = f"{self._url} answers {response.status_code}"
            raise TransportUnavailable(message, retry_after_s=retry_after_s)
        return Reply(
            f"{self._url}{path}",
            response.status_code,
            content,
            response.headers.get("ETag", ""),
            retry_after_s,
        )

    async def _document(self, path: str) -> bytes:
        return (await self.call("GET", path, limit=_MAX_DOCUMENT_BYTES)).required(_OK).body

    async def _connected(self) -> "httpx.AsyncClient":
        import httpx  # noqa: PLC0415 - as above

        if self._client is not None and self._ignores_dates and not self.clock.is_behind:
            await self.close()  # The clock has been set: from now on dates count.
        if self._client is None:
            self._ignores_dates = self.clock.is_behind
            self._client = httpx.AsyncClient(
                base_url=self._url,
                verify=self._tls(),
                trust_env=self._use_environment,
                follow_redirects=False,
                limits=httpx.Limits(max_connections=2, max_keepalive_connections=1),
                headers={"User-Agent": "watchword-agent", "Accept-Encoding": "identity"},
            )
        return self._client

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            message = f"{self._ca_file}: {error.strerror or 'no PEM certificates'}"
            raise BadArgument(message) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._ignores_dates:
            context.verify_flags |= _NO_CHECK_TIME
        return context

    def _take_hint(self, date: str | None) -> None:
        at = _http_date(date)
        if at is not None:
            self.clock.hint(at)


class Reply:
    """What a gateway answered, where it was no call to try again."""

    def __init__(
        self, url: str, status: int, body: bytes, etag: str, retry_after_s: float | None
    ) -> None:
        """Take the parts."""
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s
        found = _TAG.fullmatch(etag)
        self.tag = found[1] if found else None
        self._url = url

    def required(self, *statuses: int) -> "Reply":
        """Return the reply if it has one of these statuses; raises `TransportRefused`."""
        if self.status not in statuses:
            message = f"{self._url} answers {self.status}{_problem(self.body)}"
            raise TransportRefused(message)
        return self


class _HttpConversation:
    def __init__(self, transport: HttpTransport, pace: Pace) -> None:
        self._transport = transport
        self._pace = pace
        self._after: dict[bytes, str] = {}

    async def publish(self, request: bytes) -> None:
        reply = await self._transport.call(
            "POST", "/v1/joins", limit=64 * 1024, body=request, trace=traceparent()
        )
        reply.required(_OK, _ACCEPTED)

    async def receive(self, request_sha256: bytes, wait_s: float) -> bytes | None:
        began = self._pace.monotonic()
        params = {"wait": str(max(0, int(wait_s)))}
        if (after := self._after.get(request_sha256)) is not None:
            params["after"] = after
        reply = await self._transport.call(
            "GET",
            f"/v1/joins/{request_sha256.hex()}",
            limit=MAX_TOKEN_BYTES,
            params=params,
            wait_s=wait_s,
        )
        if reply.status == _OK:
            if reply.tag is not None:
                self._after[request_sha256] = reply.tag
            return reply.body
        # A gateway that does not know the request is one that was restarted: as good as none yet.
        reply.required(_ACCEPTED, _NO_CONTENT, _NOT_MODIFIED, _NOT_FOUND)
        rest_s = min(_MIN_POLL_S, wait_s) - (self._pace.monotonic() - began)
        if rest_s > 0:
            await self._pace.sleep(self._pace.spread(max(rest_s, reply.retry_after_s or 0.0)))
        return None


def _in_words(error: BaseException) -> str:
    """Return the error's class, which says enough; its message may carry what the other side said.

    What OpenSSL says of a certificate is of this side, and nobody finds out without it.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not accepted: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


async def _read(response: "httpx.Response", limit: int) -> bytes:
    content = bytearray()
    async for part in response.aiter_raw():
        content += part
        if len(content) > limit:
            message = f"{response.url.host} answers more than {limit} bytes"
            raise TransportRefused(message)
    return bytes(content)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not (parts.query or parts.fragment or parts.username or parts.password)
        )
    except ValueError:
        is_good = False
    if not is_good:
        message = (
            "a gateway's address is https://host[:port][/prefix], without user, query or fragment"
        )
        raise BadArgument(message)
    return url.rstrip("/")


def _retry_after(value: str | None, clock: AgentClock) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3); None for none or nonsense."""
    if value is None:
        return None
    if _SECONDS.fullmatch(value):
        return float(value)
    at = _http_date(value)
    return None if at is None else max(0.0, (at - clock.now()).total_seconds())


def _http_date(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (OverflowError, ValueError):
        return None


def _problem(body: bytes) -> str:
    """Return the kind of a problem document (RFC 9457), if that is what the body is."""
    import json  # noqa: PLC0415 - only for a message

    try:
        said: Any = json.loads(body)
        kind = str(said["type"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    prefix = "urn:watchword:problem:"
    slug = kind.removeprefix(prefix)
    return f" ({slug})" if kind != slug and _SLUG.fullmatch(slug) else ""


_SLUG = pattern(r"[a-z-]{1,40}")
