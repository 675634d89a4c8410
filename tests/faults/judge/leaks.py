"""Secrets stay secret: no canary in a topic, table, log, metrics page or command line."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.faults.judge.canaries import Canaries
from tests.faults.judge.findings import Findings
from tests.faults.judge.tables import Tables
from tests.faults.judge.topics import Record

_PIECE = 64 * 1024 * 1024


async def check_leaks(
    canaries: Canaries,
    tables: Tables,
    topics: Mapping[str, Sequence[Record]],
    files: Iterable[Path],
    pages: Iterable[tuple[str, bytes]],
    findings: Findings,
) -> int:
    """Look for every secret everywhere; return how many bytes were looked through."""
    looked = 0
    for name, records in topics.items():
        for piece in _pieces(records):
            looked += _look(canaries, f"topic {name}", piece, findings)
    for schema, name in await tables.names():
        content = await tables.content(schema, name)
        looked += _look(canaries, f"table {schema}.{name}", content, findings)
    for path in files:
        looked += _look(canaries, f"file {path.name}", path.read_bytes(), findings)
    for title, page in pages:
        looked += _look(canaries, title, page, findings)
    return looked


def _pieces(records: Sequence[Record]) -> Iterable[bytes]:
    piece = bytearray()
    for record in records:
        piece += (record.key or b"") + b"\n" + (record.value or b"") + b"\n"
        for header, value in record.headers:
            piece += header.encode() + b"\n" + (value or b"") + b"\n"
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _look(canaries: Canaries, where: str, data: bytes, findings: Findings) -> int:
    for place in canaries.found_in(data):
        findings.wrong("secret", f"{place} found in {where}")
    return len(data)
