"""Typed reads for verifiers: what is pending when the connection is free goes out together.

Keys are checked at the seam, because one NUL or lone surrogate would fail the query for all.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from watchword.handlers.attestor import Admission, Node, Staged, Token, is_digest
from watchword.handlers.join.approvals import snapshot_of
from watchword.handlers.join.ports import NodeRow, Pair, Reads, RequestKey, RequestRow
from watchword.schemas.ids import AttestorId, NodeId, TenantId

TOKEN_ID = re.compile(r"[a-z0-9]{16}")

HARDWARE_KEY = "@hardware-key"
"""The `attestor` under which proven hardware keys are bound; no attestor can have that id."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Kind(Generic[K, V]):
    def __init__(self, query: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self.query = query
        self.known: dict[K, V | None] = {}
        self.pending: dict[K, asyncio.Future[V | None]] = {}


class Loader:
    """The reads of one attempt, each key once. `close` ends it; nothing is left running."""

    def __init__(self, reads: Reads) -> None:
        """Read through this connection, one query at a time."""
        self.tokens: _Kind[str, Token] = _Kind(reads.tokens)
        self.nodes: _Kind[UUID, NodeRow] = _Kind(reads.nodes)
        self.bindings: _Kind[Pair, UUID] = _Kind(reads.bindings)
        self.requests: _Kind[RequestKey, RequestRow] = _Kind(reads.requests)
        self._bound: _Kind[UUID, set[Pair]] = _Kind(self._bindings_of)
        self._source = reads
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self.failure: Exception | None = None
        """The first read that failed. Whatever a verifier made of it, its verdict counts for nothing."""

    async def get(self, kind: "_Kind[K, V]", key: K) -> V | None:
        """Return the row of a key, or None; many callers share one query."""
        if self._closed:
            message = "a verifier reads after it has returned"
            raise RuntimeError(message)
        if key in kind.known:
            return kind.known[key]
        future = kind.pending.get(key)
        if future is None:
            future = kind.pending[key] = asyncio.get_running_loop().create_future()
            if self._pump is None:
                self._pump = asyncio.create_task(self._run())
        # Shielded: a verifier that runs out of time must not cancel the read of the others.
        return await asyncio.shield(future)

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
            while any(
                kind.pending
                for kind in (self.tokens, self.nodes, self.bindings, self.requests, self._bound)
            ):
                await self._load(self.tokens)
                await self._load(self.nodes)
                await self._load(self.bindings)
                await self._load(self.requests)
                await self._load(self._bound)
        finally:
            self._pump = None

    async def _load(self, kind: "_Kind[K, V]") -> None:
        if not kind.pending:
            return
        pending, kind.pending = kind.pending, {}
        try:
            rows = await kind.query(list(pending))
        except BaseException as error:
            if isinstance(error, Exception):
                self.failure = self.failure or error
            for future in pending.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # whoever waited sees it; nobody may have waited
            if not isinstance(error, Exception):
                raise
            return
        for key, future in pending.items():
            row = kind.known[key] = rows.get(key)
            if not future.done():
                future.set_result(row)

    async def close(self) -> None:
        """End what still runs, so that the connection is free; nothing reads afterwards."""
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)


class Tokens:
    """Implements `attestor.TokenReads` and notes what was read."""

    __slots__ = ("_loader", "_reads")

    def __init__(self, loader: Loader, reads: set[tuple[str, object]]) -> None:
        """Read through the loader."""
        self._loader = loader
        self._reads = reads

    async def get(self, token_id: str) -> Token | None:
        """See `attestor.TokenReads`."""
        if not TOKEN_ID.fullmatch(token_id):
            return None  # a TypeError if it is no text: the author's bug
        self._reads.add(("token", token_id))
        return await self._loader.get(self._loader.tokens, token_id)


class Nodes:
    """Implements `attestor.NodeReads` and notes what was read."""

    __slots__ = ("_loader", "_reads")

    def __init__(self, loader: Loader, reads: set[tuple[str, object]]) -> None:
        """Read through the loader."""
        self._loader = loader
        self._reads = reads

    async def row(self, node_id: UUID) -> NodeRow | None:
        """Return the whole row, for the core."""
        if not isinstance(node_id, UUID):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = "a node id is a UUID"
            raise TypeError(message)
        self._reads.add(("node", node_id))
        return await self._loader.get(self._loader.nodes, node_id)

    async def get(self, node_id: UUID) -> Node | None:
        """See `attestor.NodeReads`."""
        row = await self.row(node_id)
        if row is None:
            return None
        return Node(
            id=NodeId(row.id),
            tenant=TenantId(row.tenant),
            pool=row.pool,
            site=row.site,
            role=row.role,
            state=row.state,
            attestor=AttestorId(row.attestor),
            node_key_uri=row.node_key_uri,
            hardware_key=row.hardware_key,
        )


class Bindings:
    """Implements `attestor.BindingReads` for one attestor and notes what was read."""

    __slots__ = ("_attestor", "_loader", "_reads")

    def __init__(self, loader: Loader, reads: set[tuple[str, object]], attestor: str) -> None:
        """Read through the loader, under this attestor's id only."""
        self._loader = loader
        self._reads = reads
        self._attestor = attestor

    async def get(self, subject: bytes) -> NodeId | None:
        """See `attestor.BindingReads`."""
        if not is_digest(subject):
            message = "a subject is 32 bytes"
            raise ValueError(message)
        pair = (self._attestor, subject)
        self._reads.add(("binding", pair))
        owner = await self._loader.get(self._loader.bindings, pair)
        return None if owner is None else NodeId(owner)


class Requests:
    """Implements `attestor.RequestReads` for one candidate and notes what was read."""

    __slots__ = ("_attestor", "_csr_sha256", "_loader", "_now", "_reads", "_staged")

    def __init__(
        self,
        loader: Loader,
        reads: set[tuple[str, object]],
        attestor: str,
        csr_sha256: bytes,
        now: datetime,
        staged: Staged,
    ) -> None:
        """Read through the loader; what is consumed is staged."""
        self._loader = loader
        self._reads = reads
        self._attestor = attestor
        self._csr_sha256 = csr_sha256
        self._now = now
        self._staged = staged

    async def approved(self, subject: bytes, grant: Admission) -> bool:
        """See `attestor.RequestReads`."""
        if len(subject) != 32:  # noqa: PLR2004 - SHA-256
            message = "a subject is 32 bytes"
            raise ValueError(message)
        key = (self._attestor, subject, self._csr_sha256)
        self._reads.add(("request", key))
        row = await self._loader.get(self._loader.requests, key)
        snapshot = snapshot_of(grant)
        if row is None or row.state != "approved" or row.expires_at <= self._now:
            return False
        if row.snapshot != snapshot:
            return False
        self._staged.approval = (subject, snapshot)
        return True
