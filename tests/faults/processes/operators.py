"""The operator's process, as the load sees it."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.faults.load.anchors import SITE, Anchors, ImageSecret, SiteAgent
from tests.faults.load.tokens import Token
from tests.faults.processes.operator_program import DSN_FILE
from tests.support.folders import ROOT

_LONGEST_LINE = 16 * 1024 * 1024
_ENDED = "the operator has ended"


class OperatorProcess:
    """Carries out orders, some at a time; each caller waits for its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Take a started process; `start` makes one."""
        self._process = process
        self._given = 0
        self._open: dict[int, asyncio.Future[Any]] = {}
        """Orders that are not carried out yet, by their number."""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, dsn_file: Path, log: Path) -> Self:
        """Start it, and have it make the tenant and the pool of the load."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.faults.processes.operator_program",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={"PATH": os.defpath, DSN_FILE: str(dsn_file)},
                limit=_LONGEST_LINE,
            )
        made = cls(process)
        await made._order(do="found")
        return made

    async def make_tokens(self, count: int, **order: Any) -> list[Token]:  # noqa: ANN401 - a token's fields
        """Return fresh tokens."""
        made = await self._order(do="make", count=count, **order)
        return [Token(token_id, bytes.fromhex(secret)) for token_id, secret in made]

    async def revoke_token(self, token: Token) -> None:
        """Let nobody join with this token any more."""
        await self._order(do="revoke", token=token.id)

    async def decide(self, csr_sha256: bytes, word: str) -> bool:
        """Let a waiting join be `approved` or `rejected`; tell whether it was one that waited."""
        return bool(await self._order(do="decide", csr=csr_sha256.hex(), word=word))

    async def tell(self, node: str, kind: str) -> str:
        """Send a command to a node; return its id."""
        return str(await self._order(do="tell", node=node, kind=kind))

    async def ban(self, node: str) -> None:
        """Ban a node, by everything that was proven of it alone."""
        await self._order(do="ban", node=node)

    async def explain(
        self, stretches: Sequence[tuple[str, str]], *, within_s: float, at_once: int
    ) -> list[dict[str, Any] | None]:
        """Have the requests of stretches of time explained, for as long as there is time.

        Returns what was answered, in order: None of what was not asked any more, a member `error` where it failed.
        """
        found: list[dict[str, Any] | None] = await self._order(
            do="explain", stretches=stretches, within_s=within_s, at_once=at_once
        )
        return found

    async def make_anchors(self) -> Anchors:
        """Make an image's secret, and trust a site's agent."""
        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw().hex()
        made = await self._order(do="anchors", site=SITE, public=public)
        image = ImageSecret(made["image"], bytes.fromhex(made["secret"]))
        return Anchors(image, SiteAgent(made["kid"], key))

    async def close(self) -> None:
        """End the process."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _order(self, **order: Any) -> Any:  # noqa: ANN401 - JSON
        writer = self._process.stdin
        if writer is None or self._reading.done():
            raise RuntimeError(_ENDED)
        self._given += 1
        result = self._open[self._given] = asyncio.get_running_loop().create_future()
        writer.write(json.dumps({**order, "nth": self._given}).encode() + b"\n")
        return await result

    async def _read(self) -> None:
        """Hand out results until the process has ended; who waits then is told so."""
        reader = self._process.stdout
        while reader is not None and (line := await reader.readline()):
            nth, result = json.loads(line)
            # An order that was begun is carried out, whoever gave it up.
            if not (waiting := self._open.pop(nth)).done():
                waiting.set_result(result)
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(RuntimeError(_ENDED))
