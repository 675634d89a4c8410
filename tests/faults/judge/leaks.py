"""Secrets stay secret: no canary in a topic, table, log, metrics page or command line."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults.judge.canaries import Canaries
from tests.faults.judge.findings import Findings
from tests.faults.judge.tables import Tables
from tests.faults.judge.topics import Record

_PIECE = 64 * 1024 * 1024


class Leaks:
    """Looks for every secret, in one place after the other."""

    def __init__(self, canaries: Canaries, findings: Findings) -> None:
        """Have looked nowhere yet."""
        self._canaries = canaries
        self._findings = findings
        self.looked = 0
        """How many bytes were looked through."""

    def in_records(self, records: Sequence[Record]) -> None:
        """Look into records of one topic, all or some."""
        for piece in _pieces(records):
            self._look(f"topic {records[0].topic}" if records else "", piece)

    async def in_tables(self, tables: Tables) -> None:
        """Look into every table, of whatever schema."""
        for schema, name in await tables.names():
            await self._in_table(tables, schema, name)

    def in_files(self, files: Iterable[Path]) -> None:
        """Look into files."""
        for path in files:
            self._look(f"file {path.name}", path.read_bytes())

    def in_pages(self, pages: Iterable[tuple[str, bytes]]) -> None:
        """Look into pages, each with its title."""
        for title, page in pages:
            self._look(title, page)

    async def _in_table(self, tables: Tables, schema: str, name: str) -> None:
        # What lies across the border of two pieces is in the second: it begins with the end of the first.
        kept, where = bytearray(), f"table {schema}.{name}"

        async def take(piece: bytes) -> None:
            kept.extend(piece)
            if len(kept) >= _PIECE:
                self._look(where, bytes(kept))
                del kept[: -self._canaries.longest]

        await tables.copy(schema, name, take)
        self._look(where, bytes(kept))

    def _look(self, where: str, data: bytes) -> None:
        for place in self._canaries.found_in(data):
            self._findings.wrong("secret", f"{place} found in {where}")
        self.looked += len(data)


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
