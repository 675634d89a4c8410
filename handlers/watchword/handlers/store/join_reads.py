"""One connection's statements, and the reads of the join core that take no locks."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from watchword.handlers.anchors import (
    CloudAccount,
    DiscoverySite,
    Image,
    TpmEndorsement,
    TpmPolicy,
)
from watchword.handlers.attestor import Token
from watchword.handlers.errors import StoreUnavailable
from watchword.handlers.rows import (
    NO_MARK,
    AdmittedCsr,
    CertificateRow,
    Digest,
    GrantRow,
    InboxRow,
    Look,
    Mark,
    NodeRow,
    Pair,
    Renewable,
    RequestKey,
    RequestRow,
)
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.join_statements import (
    ANCHORS,
    COMMANDS,
    JOINS,
    RECLAIMS,
    RENEWALS,
    REQUESTS,
)
from watchword.handlers.store.translate import FOREIGN, translate
from watchword.schemas.ids import NodeId, TenantId, TokenId

_LIVE = frozenset(("adopting", "active"))


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Turn rows into one list per column, also when there are none."""
    return (
        [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
    )


def request_rows(rows: Sequence[Any]) -> dict[RequestKey, RequestRow]:
    """Return join requests by their keys."""
    return {
        (row[0], row[1], row[2]): RequestRow(
            (row[0], row[1], row[2]), row[3], row[4], row[5], row[6], row[7]
        )
        for row in rows
    }


def tuple_of(values: list[str] | None) -> tuple[str, ...] | None:
    """Return an array of texts; null stays None."""
    return None if values is None else tuple(values)


def _fields(row: Any, **changed: object) -> dict[str, Any]:  # noqa: ANN401 - a record
    """Return a record's columns, some of them as the dataclass wants them."""
    return {**dict(row), **changed}


class ReadingConnection:
    """One connection that does one thing at a time; implements `join.ports.Reads`."""

    def __init__(self, connection: Connection) -> None:
        """Take the connection."""
        self.connection = connection
        # An author of raw SQL may read and write at once; a connection does one thing at a time.
        self._turn = asyncio.Lock()

    async def _fetch(self, statement: str, *arguments: object) -> list[Any]:
        try:
            async with self._turn:
                return await self.connection.fetch(statement, *arguments)
        except FOREIGN as error:
            raise self._translated(error) from error

    async def _execute(self, statement: str, *arguments: object) -> None:
        try:
            async with self._turn:
                await self.connection.execute(statement, *arguments)
        except FOREIGN as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        # Of a closed connection nothing is known, whatever the last error said.
        if self.connection.is_closed():
            return StoreUnavailable(f"{type(error).__name__}, connection closed")
        return translate(error)

    async def look(
        self,
        digests: Sequence[Digest],
        csrs: Sequence[Digest],
        mark: Mark | None = None,
    ) -> Look:
        """See `join.ports.Session`."""
        inbox: dict[Digest, InboxRow] = {}
        admitted: dict[Digest, UUID] = {}
        now: datetime | None = None
        has_grants = False
        for kind, subject, outcome, node_id, csr, reason, not_after in await self._fetch(
            JOINS.look, digests, csrs, *(mark or NO_MARK)
        ):
            if kind == "now":
                now = not_after
            elif kind == "grants":
                has_grants = True
            elif kind == "inbox":
                inbox[subject] = InboxRow(subject, outcome, node_id, csr, reason, not_after)
            else:
                admitted[subject] = node_id
        if now is None:
            message = "no time"
            raise StoreUnavailable(message)
        return Look(now, inbox, admitted, has_grants)

    async def admissions(self, csrs: Sequence[Digest]) -> Mapping[Digest, AdmittedCsr]:
        """See `join.ports.Session`."""
        return {
            row["csr_sha256"]: AdmittedCsr(
                csr_sha256=row["csr_sha256"],
                node_id=row["node_id"],
                serial=row["serial"],
                der=row["der"],
                not_before=row["not_before"],
                not_after=row["not_after"],
                allowed_kinds=tuple_of(row["allowed_kinds"]),
                stands=row["is_current"] and not row["revoked"] and row["state"] in _LIVE,
                tenant=row["tenant"],
                pool=row["pool"],
                site=row["site"],
                role=row["role"],
            )
            for row in await self._fetch(JOINS.admissions, csrs)
        }

    async def tokens(self, ids: Sequence[str]) -> Mapping[str, Token]:
        """See `join.ports.Reads`."""
        return {
            row["id"]: Token(
                id=TokenId(row["id"]),
                secret_sha256=row["secret_sha256"],
                tenant=TenantId(row["tenant"]),
                pool=row["pool"],
                site=row["site"],
                role=row["role"],
                uses_left=row["uses_left"],
                expires_at=row["expires_at"],
                revoked=row["revoked"],
                allow_reclaim=row["allow_reclaim"],
                allowed_kinds=tuple_of(row["allowed_kinds"]),
                expect=orjson.loads(row["expect"]),
            )
            for row in await self._fetch(JOINS.read_tokens, ids)
        }

    async def nodes(self, ids: Sequence[UUID]) -> Mapping[UUID, NodeRow]:
        """See `join.ports.Reads`."""
        return {row[0]: NodeRow(*row) for row in await self._fetch(JOINS.read_nodes, ids)}

    async def bindings(self, pairs: Sequence[Pair]) -> Mapping[Pair, UUID]:
        """See `join.ports.Reads`."""
        rows = await self._fetch(JOINS.read_bindings, *columns(list(pairs), 2))
        return {(attestor, subject): NodeId(node_id) for attestor, subject, node_id in rows}

    async def requests(self, keys: Sequence[RequestKey]) -> Mapping[RequestKey, RequestRow]:
        """See `join.ports.Reads`."""
        return request_rows(await self._fetch(REQUESTS.read, *columns(list(keys), 3)))

    async def bindings_of(self, nodes: Sequence[UUID]) -> Mapping[Pair, UUID]:
        """See `join.ports.Session`."""
        return {
            (row[0], row[1]): row[2] for row in await self._fetch(JOINS.lock_node_bindings, nodes)
        }

    async def certificates(self, tbs: Sequence[Digest]) -> Mapping[Digest, CertificateRow]:
        """See `join.ports.Reads`."""
        return {
            row["tbs_sha256"]: CertificateRow(
                tbs_sha256=row["tbs_sha256"],
                node_id=row["node_id"],
                spki_sha256=row["spki_sha256"],
                not_before=row["not_before"],
                not_after=row["not_after"],
                allowed_kinds=tuple_of(row["allowed_kinds"]),
                node_key_uri=row["node_key_uri"],
                is_current=row["is_current"],
                revoked=row["revoked"],
            )
            for row in await self._fetch(ANCHORS.certificates, tbs)
        }

    async def grants(self, subjects: Sequence[Digest]) -> Mapping[Digest, list[GrantRow]]:
        """See `join.ports.Reads`."""
        found: dict[Digest, list[GrantRow]] = {}
        for row in await self._fetch(RECLAIMS.read, subjects):
            found.setdefault(row["subject"], []).append(GrantRow(*row))
        return found

    async def renewables(self, tbs: Sequence[Digest]) -> Mapping[Digest, Renewable]:
        """See `join.ports.Reads`."""
        return {
            row["tbs_sha256"]: Renewable(
                csr_sha256=row["csr_sha256"],
                serial=row["serial"],
                certificate=CertificateRow(
                    tbs_sha256=row["tbs_sha256"],
                    node_id=row["id"],
                    spki_sha256=row["spki_sha256"],
                    not_before=row["not_before"],
                    not_after=row["not_after"],
                    allowed_kinds=tuple_of(row["allowed_kinds"]),
                    node_key_uri=row["statement"],
                    is_current=row["is_current"],
                    revoked=row["revoked"],
                ),
                node=NodeRow(**{name: row[name] for name in NodeRow.__slots__}),
                successor_spki=row["successor_spki"],
                contested=row["contested"],
            )
            for row in await self._fetch(RENEWALS.read, tbs)
        }

    async def open_commands(self, nodes: Sequence[UUID]) -> Mapping[UUID, int]:
        """See `join.ports.Reads`."""
        return {row[0]: row[1] for row in await self._fetch(COMMANDS.open_of, nodes)}

    async def nodes_by_subject(self, subjects: Sequence[Digest]) -> Mapping[Digest, list[UUID]]:
        """See `join.ports.Reads`."""
        found: dict[Digest, list[UUID]] = {}
        for subject, node_id in await self._fetch(ANCHORS.nodes_by_subject, subjects):
            found.setdefault(subject, []).append(node_id)
        return found

    # What operators have written down

    async def images(self, ids: Sequence[str]) -> Mapping[str, Image]:
        """See `join.ports.Reads`."""
        rows = await self._fetch(ANCHORS.images, ids)
        return {
            row["id"]: Image(
                **_fields(
                    row,
                    allowed_kinds=tuple_of(row["allowed_kinds"]),
                    expect=orjson.loads(row["expect"]),
                )
            )
            for row in rows
        }

    async def discovery_sites(self, kids: Sequence[str]) -> Mapping[str, DiscoverySite]:
        """See `join.ports.Reads`."""
        rows = await self._fetch(ANCHORS.discovery_sites, kids)
        return {
            row["kid"]: DiscoverySite(**_fields(row, allowed_kinds=tuple(row["allowed_kinds"])))
            for row in rows
        }

    async def cloud_accounts(
        self, keys: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], CloudAccount]:
        """See `join.ports.Reads`."""
        rows = await self._fetch(ANCHORS.cloud_accounts, *columns(list(keys), 2))
        return {
            (row["provider"], row["account"]): CloudAccount(
                **_fields(
                    row,
                    regions=tuple_of(row["regions"]),
                    allowed_kinds=tuple_of(row["allowed_kinds"]),
                )
            )
            for row in rows
        }

    async def tpm_endorsements(self, eks: Sequence[Digest]) -> Mapping[Digest, TpmEndorsement]:
        """See `join.ports.Reads`."""
        rows = await self._fetch(ANCHORS.tpm_endorsements, eks)
        return {
            row["ek_sha256"]: TpmEndorsement(
                **_fields(row, allowed_kinds=tuple_of(row["allowed_kinds"]))
            )
            for row in rows
        }

    async def tpm_policies(
        self, keys: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], TpmPolicy]:
        """See `join.ports.Reads`."""
        rows = await self._fetch(ANCHORS.tpm_policies, *columns(list(keys), 2))
        return {
            (row["tenant"], row["pool"]): TpmPolicy(
                TenantId(row["tenant"]), row["pool"], orjson.loads(row["policy"])
            )
            for row in rows
        }
