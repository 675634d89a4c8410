"""Reads of one attempt: what is pending when the connection is free goes out together, each key once."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar
from uuid import UUID

from watchword.handlers.anchors import (
    CloudAccount,
    DiscoverySite,
    Image,
    TpmEndorsement,
    TpmPolicy,
)
from watchword.handlers.attestor import Token
from watchword.handlers.join.ports import Reads
from watchword.handlers.rows import (
    CertificateRow,
    GrantRow,
    NodeRow,
    Pair,
    Renewable,
    RequestKey,
    RequestRow,
)

_TOO_LATE = "a verifier reads after it has returned"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Rows(Generic[K, V]):
    """The rows of one kind by key: known, or asked for."""

    def __init__(self, query: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        """Read with this query."""
        self.query = query
        self.known: dict[K, V | None] = {}
        self.pending: dict[K, list[asyncio.Future[V | None]]] = {}


class Loader:
    """The reads of one attempt, each key once. `close` ends it; nothing is left running."""

    def __init__(self, reads: Reads) -> None:
        """Read through this connection, one query at a time."""
        self.tokens: Rows[str, Token] = Rows(reads.tokens)
        self.nodes: Rows[UUID, NodeRow] = Rows(reads.nodes)
        self.bindings: Rows[Pair, UUID] = Rows(reads.bindings)
        self.requests: Rows[RequestKey, RequestRow] = Rows(reads.requests)
        self.certificates: Rows[bytes, CertificateRow] = Rows(reads.certificates)
        self.grants: Rows[bytes, list[GrantRow]] = Rows(reads.grants)
        self.renewables: Rows[bytes, Renewable] = Rows(reads.renewables)
        self.open_commands: Rows[UUID, int] = Rows(reads.open_commands)
        self.nodes_by_subject: Rows[bytes, list[UUID]] = Rows(reads.nodes_by_subject)
        self.images: Rows[str, Image] = Rows(reads.images)
        self.discovery_sites: Rows[str, DiscoverySite] = Rows(reads.discovery_sites)
        self.cloud_accounts: Rows[tuple[str, str], CloudAccount] = Rows(reads.cloud_accounts)
        self.tpm_endorsements: Rows[bytes, TpmEndorsement] = Rows(reads.tpm_endorsements)
        self.tpm_policies: Rows[tuple[str, str], TpmPolicy] = Rows(reads.tpm_policies)
        self._bound: Rows[UUID, set[Pair]] = Rows(self._bindings_of)
        self._kinds: tuple[Rows[Any, Any], ...] = (
            self.tokens,
            self.nodes,
            self.bindings,
            self.requests,
            self.certificates,
            self.renewables,
            self.open_commands,
            self.grants,
            self.nodes_by_subject,
            self.images,
            self.discovery_sites,
            self.cloud_accounts,
            self.tpm_endorsements,
            self.tpm_policies,
            self._bound,
        )
        self._source = reads
        self.has_grants = True
        """Whether any reclaim is granted: else nobody needs to look for one."""
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self._asked_at: float | None = None
        self.failure: Exception | None = None
        """The first read that failed. Whatever a verifier made of it, its verdict counts for nothing."""

    async def get(self, kind: Rows[K, V], key: K) -> V | None:
        """Return the row of a key, or None; many callers share one query."""
        if self._closed:
            raise RuntimeError(_TOO_LATE)
        if key in kind.known:
            return kind.known[key]
        return await self._asked(kind, key)

    async def get_all(self, kind: Rows[K, V], keys: Sequence[K]) -> list[V | None]:
        """Return the rows of keys, each or None, in their order: asked for at once."""
        if self._closed:
            raise RuntimeError(_TOO_LATE)
        asked = [self._asked(kind, key) for key in keys if key not in kind.known]
        for future in asked:
            await future
        return [kind.known[key] for key in keys]

    def _asked(self, kind: Rows[K, V], key: K) -> "asyncio.Future[V | None]":
        # One for each caller: a verifier that runs out of time must not cancel the read of the others.
        future: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        waiting = kind.pending.get(key)
        if waiting is None:
            kind.pending[key] = [future]
            if self._pump is None:
                self._pump = asyncio.create_task(self._run())
        else:
            waiting.append(future)
        return future

    def waits_for(self) -> float:
        """Return for how many seconds the query that runs has been running; 0 if none runs."""
        return 0.0 if self._asked_at is None else time.monotonic() - self._asked_at

    async def bound_to(self, node: UUID) -> set[Pair]:
        """Return everything that is bound to a node."""
        return await self.get(self._bound, node) or set()

    async def _bindings_of(self, nodes: Sequence[UUID]) -> Mapping[UUID, set[Pair]]:
        found: dict[UUID, set[Pair]] = {}
        for pair, node in (await self._source.bindings_of(nodes)).items():
            found.setdefault(node, set()).add(pair)
        return found

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # let every verifier that can reach its read do so
            while any(kind.pending for kind in self._kinds):
                for kind in self._kinds:
                    await self._load(kind)
        finally:
            self._pump = None

    async def _load(self, kind: Rows[K, V]) -> None:
        if not kind.pending:
            return
        pending, kind.pending = kind.pending, {}
        self._asked_at = time.monotonic()
        try:
            rows = await kind.query(list(pending))
        except BaseException as error:
            if isinstance(error, Exception):
                self.failure = self.failure or error
            for future in chain.from_iterable(pending.values()):
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # whoever waited sees it, unless it is just being cancelled
            if not isinstance(error, Exception):
                raise
            return
        finally:
            self._asked_at = None
        for key, waiting in pending.items():
            row = kind.known[key] = rows.get(key)
            for future in waiting:
                if not future.done():
                    future.set_result(row)

    async def close(self) -> None:
        """End what still runs, so that the connection is free; nothing reads afterwards."""
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        # What a verifier left running waits for nothing.
        for kind in self._kinds:
            for future in chain.from_iterable(kind.pending.values()):
                if not future.done():
                    future.set_exception(RuntimeError(_TOO_LATE))
                    future.exception()
            kind.pending = {}
