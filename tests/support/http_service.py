"""A little HTTP/1.1 server that answers as a test says: what a gateway, or anybody in its place, may do."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import parse_qsl, urlsplit

from tests.support.agents import Reaction, Service


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """One response. `cut` leaves the last bytes of the body out and closes the connection."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: int = 0


Handler = Callable[[Call], Awaitable[Answer | None]]
"""None closes the connection without an answer."""


def tagged(token: bytes) -> Answer:
    """Answer a poll as the gateway does."""
    return Answer(200, token, {"ETag": f'"{sha256(token).hexdigest()[:32]}"'})


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """Yield the URL of a server on this machine; connections are closed after each answer."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        try:
            answer = await handler(await _read(reader))
            if answer is not None:
                _write(writer, answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls, limit=1024 * 1024)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://localhost:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Call(method, parts.path, dict(parse_qsl(parts.query)), headers, body)


def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
    lines = [f"HTTP/1.1 {answer.status} Said"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += [f"Content-Length: {len(answer.body)}", "Connection: close", "", ""]
    body = answer.body[: len(answer.body) - answer.cut]
    writer.write("\r\n".join(lines).encode("latin-1") + body)


class ScriptedGateway:
    """Answers like ours, with a worker behind it that reacts to each new request as a test says."""

    def __init__(self, service: Service) -> None:
        """Know no request yet."""
        self.service = service
        self.calls: list[Call] = []
        self.posted: list[bytes] = []
        self.reactions: list[Reaction] = []
        self.answers: dict[str, list[bytes]] = {}
        self.before: Callable[[Call], Answer | None] = lambda _: None
        self.hold: Callable[[Call], Awaitable[object]] | None = None
        """What is awaited before a call is answered."""

    async def __call__(self, call: Call) -> Answer | None:
        """Answer one call."""
        self.calls.append(call)
        if call.method == "POST":
            self.posted.append(call.body)
        if self.hold is not None:
            await self.hold(call)
        if (early := self.before(call)) is not None:
            return early
        match call.method, call.path.split("/")[2:]:
            case "GET", ["keys"]:
                return Answer(200, self.service.key_set())
            case "GET", ["trust-bundle"]:
                return Answer(200, self.service.trust_bundle())
            case "POST", ["joins"]:
                return self._post(call)
            case "GET", ["joins", digest]:
                return await self._poll(digest, call)
            case _:
                return Answer(404)

    def _post(self, call: Call) -> Answer:
        assert call.headers["content-type"] == "application/json"
        assert "content-encoding" not in call.headers
        digest = sha256(call.body).hexdigest()
        if self.reactions and (token := self.reactions.pop(0)(call.body)) is not None:
            self.answers.setdefault(digest, []).append(token)
        return Answer(202, headers={"Location": f"/v1/joins/{digest}", "Retry-After": "1"})

    async def _poll(self, digest: str, call: Call) -> Answer:
        answers = [tagged(token) for token in self.answers.get(digest, [])]
        tags = [answer.headers["ETag"].strip('"') for answer in answers]
        after = call.query.get("after")
        rest = answers[tags.index(after) + 1 :] if after in tags else answers
        if rest:
            return rest[0]
        await asyncio.sleep(min(0.05, int(call.query["wait"])))
        return Answer(202, headers={"Retry-After": "1"})
