"""Machines that come through gateways, as one load balancer in front of them would bring them.

In processes of their own, so that the one who measures is not what is measured. Each connection is one machine
after the other: a POST at one gateway, then a long poll at the next, until the answer is there.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.connection import Connection

_PATIENCE_S = 120.0
_START_S = 60.0
_WAIT_S = 25


class NotAnswered(Exception):
    """A gateway said something else than it must, or nothing."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one process does."""

    ports: Sequence[int]
    requests: Sequence[bytes]
    connections: int


@dataclass(frozen=True, slots=True)
class Driven:
    """When it began and ended, how long each machine waited, and the answers, in the order of the requests."""

    began: float
    ended: float
    waited_s: list[float]
    answers: list[bytes]


class Drivers:
    """Processes that bring machines; they begin together."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        """Start them; they wait."""
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self.processes = []
        for one in rounds:
            ours, theirs = context.Pipe()
            process = context.Process(target=_main, args=(one, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)
        for pipe in self._pipes:
            self._expect(pipe, "ready", _START_S)

    @property
    def pids(self) -> list[int]:
        """The processes' ids."""
        return [process.pid or 0 for process in self.processes]

    def go(self) -> None:
        """Let them begin."""
        for pipe in self._pipes:
            pipe.send("go")

    async def driven(self) -> list[Driven]:
        """Return what they did, when all have ended; raises `NotAnswered`."""
        found: list[Driven] = []
        for pipe in self._pipes:
            said = await asyncio.to_thread(pipe.recv)
            if not isinstance(said, Driven):
                raise NotAnswered(said)
            found.append(said)
        return found

    def close(self) -> None:
        """End them."""
        for process, pipe in zip(self.processes, self._pipes, strict=True):
            process.terminate()
            process.join()
            pipe.close()

    @staticmethod
    def _expect(pipe: Connection, what: str, within_s: float) -> None:
        if not pipe.poll(within_s) or pipe.recv() != what:
            message = "a driver did not start"
            raise TimeoutError(message)


def _main(todo: Round, pipe: Connection) -> None:
    pipe.send("ready")
    pipe.recv()
    try:
        pipe.send(asyncio.run(_drive(todo)))
    except (NotAnswered, OSError, EOFError, TimeoutError) as error:
        pipe.send(f"{type(error).__name__}: {error}")


async def _drive(todo: Round) -> Driven:
    waited: list[float] = [0.0] * len(todo.requests)
    answers: list[bytes] = [b""] * len(todo.requests)
    left = iter(range(len(todo.requests)))

    async def machines(number: int) -> None:
        # As from a balancer: what one gateway took another one answers.
        clients = [_Client(port) for port in todo.ports]
        for nth in left:
            taker, answerer = (clients[(number + nth + step) % len(clients)] for step in (0, 1))
            begun = time.monotonic()
            answers[nth] = await _joined(taker, answerer, todo.requests[nth], _address(nth))
            waited[nth] = time.monotonic() - begun
        for client in clients:
            client.close()

    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(todo.connections):
            tasks.create_task(machines(number))
    return Driven(began, time.monotonic(), waited, answers)


async def _joined(taker: "_Client", answerer: "_Client", request: bytes, address: str) -> bytes:
    status, body = await taker.ask("POST", "/v1/joins", address, request)
    if status != 202:
        message = f"POST: {status} {body[:200]!r}"
        raise NotAnswered(message)
    path = f"/v1/joins/{sha256(request).hexdigest()}?wait={_WAIT_S}"
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            status, body = await answerer.ask("GET", path, address)
            if status == 200:
                return body
            if status != 202:
                message = f"GET: {status} {body[:200]!r}"
                raise NotAnswered(message)


def _address(nth: int) -> str:
    """Return a machine's own address: none has the limits of another."""
    return f"10.{nth >> 16 & 255}.{nth >> 8 & 255}.{nth & 255}"


class _Client:
    """One HTTP/1.1 connection that stays open; as little as it takes, so that it costs little."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, address: str, body: bytes = b""
    ) -> tuple[int, bytes]:
        """Return status and body; once more if the gateway had closed the connection meanwhile."""
        if self._open is not None:
            try:
                return await self._asked(method, path, address, body)
            except (asyncio.IncompleteReadError, ConnectionError):
                self.close()
        return await self._asked(method, path, address, body)

    async def _asked(self, method: str, path: str, address: str, body: bytes) -> tuple[int, bytes]:
        if self._open is None:
            self._open = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._open
        content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" * bool(body)
        head = f"{method} {path} HTTP/1.1\r\nHost: g\r\nX-Forwarded-For: {address}\r\n{content}\r\n"
        writer.write(head.encode() + body)
        said = await reader.readuntil(b"\r\n\r\n")
        lower = said.lower()
        length = int(lower.partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        found = await reader.readexactly(length)
        if b"connection: close" in lower:
            self.close()
        return int(said.split(b" ", 2)[1]), found

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
