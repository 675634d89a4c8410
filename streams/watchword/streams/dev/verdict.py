"""Judges a run from outside: from topics and tables alone, with nothing of what decided it.

It imports neither handlers nor the processes; import-linter holds it to that. What it knows of
Watchword is what any consumer of its topics knows.
"""

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg

from watchword.schemas.topics import JOIN_REFUSED, JOIN_REFUSED_OCSF, JOIN_RESPONSES, NODE_EVENTS
from watchword.streams.dev.expectations import JOINED, Machine, Run
from watchword.streams.dev.topic_reader import Read, reading

TOPICS = (NODE_EVENTS, JOIN_REFUSED, JOIN_REFUSED_OCSF, JOIN_RESPONSES)

_Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_REST_S = 0.2
_ENROLL = 300_406
"""OCSF's type_uid: Entity Management (3004), activity Enroll (6)."""
_FINDING = 200_401
"""Detection Finding (2004), activity Create (1)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and whether it was kept."""

    promise: str
    problems: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Tell whether nothing was found against it."""
        return not self.problems


async def judge(
    bootstrap_servers: str, database_url: str, run: Run, *, patience_s: float
) -> list[Check]:
    """Read the topics from where the run began, and the tables; return what was promised and kept.

    Waits up to `patience_s` for events that are on their way.
    """
    deadline = time.monotonic() + patience_s
    connection = await asyncpg.connect(
        database_url, server_settings={"search_path": "watchword,pg_catalog"}
    )
    try:
        async with reading(bootstrap_servers, TOPICS, run.starts) as reader:
            records = await reader.read_to_the_end(within_s=patience_s)
            while not _complete(records, run) and time.monotonic() < deadline:
                await asyncio.sleep(_REST_S)
                records += await reader.read()
            # Whatever is there beyond what was waited for is one event too many.
            records += await reader.read_to_the_end(within_s=patience_s)
        return [check async for check in _checks(connection, records, run)]
    finally:
        await connection.close()


def _complete(records: Sequence[Read], run: Run) -> bool:
    joined = _csrs(records, NODE_EVENTS)
    refused = _csrs(records, JOIN_REFUSED)
    ocsf = sum(record.topic == JOIN_REFUSED_OCSF for record in records)
    return (
        all(machine.csr_sha256 in joined for machine in _joining(run))
        and all(machine.csr_sha256 in refused for machine in _refused(run))
        and ocsf >= len(list(_refused(run)))
    )


async def _checks(
    connection: _Connection, records: Sequence[Read], run: Run
) -> AsyncGenerator[Check]:
    yield Check("each machine was told what was expected", tuple(_told(run)))
    yield Check(
        "one node.joined for each that joined, none for the others", tuple(_events(records, run))
    )
    yield Check(
        "one security.join.refused for each that did not, with its reason",
        tuple(_refusals(records, run)),
    )
    yield Check("each refusal as OCSF 1.5 Enroll/Failure", tuple(_ocsf(records, run)))
    yield Check("headers repeat id, type and tenant (CloudEvents 1.0)", tuple(_headers(records)))
    yield Check("all refusals look alike from outside", tuple(_alike(records, run)))
    tables = [problem async for problem in _tables(connection, records, run)]
    yield Check("tables say what the events say", tuple(tables))
    tokens = [problem async for problem in _tokens(connection, run)]
    yield Check("tokens were spent once for each join", tuple(tokens))
    yield Check("no secret of a token in any record", tuple(_secrets(records, run)))


def _told(run: Run) -> Iterator[str]:
    for machine in run.machines:
        wanted = JOINED if machine.expected == JOINED else "refused"
        if machine.seen != wanted:
            yield f"{machine.name}: {machine.seen}, expected {wanted}"


def _events(records: Sequence[Read], run: Run) -> Iterator[str]:
    seen = _csrs(records, NODE_EVENTS)
    for machine in run.machines:
        wanted = int(machine.expected == JOINED)
        if seen[machine.csr_sha256] != wanted:
            yield f"{machine.name}: {seen[machine.csr_sha256]} node.joined, expected {wanted}"
    strangers = seen.keys() - {machine.csr_sha256 for machine in run.machines}
    if strangers:
        yield f"{len(strangers)} node.joined of machines that are not of this run"


def _refusals(records: Sequence[Read], run: Run) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for body in _bodies(records, JOIN_REFUSED):
        if body["type"] == "security.join.refused":
            reasons.setdefault(body["csrSha256"], []).append(body["refusal"])
    for machine in run.machines:
        wanted = [] if machine.expected == JOINED else [machine.expected]
        if reasons.get(machine.csr_sha256, []) != wanted:
            yield f"{machine.name}: {reasons.get(machine.csr_sha256, [])}, expected {wanted}"


def _ocsf(records: Sequence[Read], run: Run) -> Iterator[str]:
    wanted = {body["id"] for body in _bodies(records, JOIN_REFUSED)}
    found: set[str] = set()
    for body in _bodies(records, JOIN_REFUSED_OCSF):
        found.add(body["metadata"]["uid"])
        if body["type_uid"] == _FINDING:
            continue  # an alert over refusals
        if body["type_uid"] != _ENROLL or body["status_id"] != 2:  # noqa: PLR2004 - Failure
            yield f"{body['metadata']['uid']}: type_uid {body['type_uid']}, status_id {body['status_id']}"
    if found != wanted:
        yield f"{len(found)} events for {len(wanted)} refusals of {len(list(_refused(run)))}"


def _headers(records: Sequence[Read]) -> Iterator[str]:
    for record in records:
        if record.topic not in (NODE_EVENTS, JOIN_REFUSED):
            continue
        body = _json(record.value)
        said = tuple(record.headers.get(name) for name in ("ce_id", "ce_type", "ce_tenantid"))
        if said != (body["id"], body["type"], body["tenant"]):
            yield f"{record.topic}-{record.partition}@{record.offset}: {said}"


def _alike(records: Sequence[Read], run: Run) -> Iterator[str]:
    refused = {machine.csr_sha256 for machine in _refused(run)}
    shapes: Counter[tuple[bool, tuple[str, ...], int]] = Counter()
    for record in records:
        if (
            record.topic == JOIN_RESPONSES
            and record.key is not None
            and _hex(record.key) in refused
        ):
            payload = _payload(record.value)
            is_sealed = "sealed" in payload
            shapes[is_sealed, tuple(sorted(payload)), len(record.value or b"")] += 1
    if not shapes:
        yield "no answer to a refused machine was found"
    for is_sealed in (False, True):
        kinds = [shape for shape in shapes if shape[0] is is_sealed]
        if len(kinds) > 1:
            yield f"{len(kinds)} forms of a refusal: {kinds}"


async def _tables(
    connection: _Connection, records: Sequence[Read], run: Run
) -> AsyncGenerator[str]:
    events = {
        body["csrSha256"]: body
        for body in _bodies(records, NODE_EVENTS)
        if body["type"] == "node.joined"
    }
    for machine in run.machines:
        digest = bytes.fromhex(machine.csr_sha256)
        nodes = await connection.fetch(
            "SELECT n.id, n.tenant, n.pool, n.state, c.serial, c.is_current FROM node_certs c"
            " JOIN nodes n ON n.id = c.node_id WHERE c.csr_sha256 = $1",
            digest,
        )
        refusals = await connection.fetch(
            "SELECT attestor, reason, published FROM refusals WHERE csr_sha256 = $1", digest
        )
        if machine.expected == JOINED:
            event = events.get(machine.csr_sha256, {})
            said = [
                (str(n["id"]), n["tenant"], n["pool"], n["serial"].hex(), n["state"]) for n in nodes
            ]
            wanted = tuple(event.get(k) for k in ("nodeId", "tenant", "pool", "certificateSerial"))
            if said != [(*wanted, "adopting")] or refusals:
                yield f"{machine.name}: {said} and {len(refusals)} refusals, the event says {wanted}"
        elif nodes or [f"{r['attestor']}:{r['reason']}" for r in refusals] != [machine.expected]:
            yield f"{machine.name}: {len(nodes)} nodes, refused {len(refusals)} times"


async def _tokens(connection: _Connection, run: Run) -> AsyncGenerator[str]:
    for token in run.tokens:
        left = await connection.fetchval(
            "SELECT uses_left FROM tokens WHERE id = $1", token.token_id
        )
        if left != token.uses_left:
            yield f"{token.token_id}: {left} uses left, expected {token.uses_left}"


def _secrets(records: Sequence[Read], run: Run) -> Iterator[str]:
    for record in records:
        for secret in run.secrets:
            if secret in (record.value or b"") or secret in repr(record.headers).encode():
                yield f"{record.topic}-{record.partition}@{record.offset}"


def _joining(run: Run) -> Iterable[Machine]:
    return (machine for machine in run.machines if machine.expected == JOINED)


def _refused(run: Run) -> Iterable[Machine]:
    return (machine for machine in run.machines if machine.expected != JOINED)


def _csrs(records: Sequence[Read], topic: str) -> Counter[str]:
    return Counter(
        body["csrSha256"]
        for body in _bodies(records, topic)
        if body["type"] in ("node.joined", "security.join.refused")
    )


def _bodies(records: Sequence[Read], topic: str) -> Iterator[dict[str, Any]]:
    return (_json(record.value) for record in records if record.topic == topic)


def _json(value: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(value or b"{}")
    return found


def _payload(token: bytes | None) -> Mapping[str, Any]:
    """Return what a JWS in its compact form says; nobody's word is taken for it here."""
    part = (token or b"..").split(b".")[1]
    return _json(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))


def _hex(key: bytes) -> str:
    return key.hex()
