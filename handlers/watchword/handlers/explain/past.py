"""What the tables had at a moment: rows that were touched since are folded from the journal again. Pure.

The journal tells of every change of every row that a verdict rests on (`rebuild.fold`). A row that no later
event touched is as it is now; of the others, events up to the moment are folded anew.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from watchword.handlers.rebuild.fold import KEYS, Add, Delete, Operation, Patch, Put, Row, fold
from watchword.schemas.canonical import b64

Key = tuple[str, ...]
"""The key of a row, each column as the journal has it (base64, text), in the order of `KEYS`."""

NODE_TABLES = frozenset(
    (
        "nodes",
        "node_certs",
        "admission_claims",
        "node_subjects",
        "node_bindings",
        "attestation_uses",
    )
)
"""Tables whose rows are a node's: every event that touches one has the node's id for its key."""


@dataclass(frozen=True, slots=True, eq=False)
class PastEvent:
    """A domain event of the journal, with what it did."""

    seq: int
    xid: int
    recorded_at: datetime
    """PostgreSQL's clock when the row was written: after every lock of its transaction."""
    occurred_at: datetime
    """The time that judged and stamped its attempt."""
    type: str
    key: str
    private: Mapping[str, Any] = field(repr=False)
    place: tuple[str, str | None] | None = None
    """Tenant and site of a join that waits; None of other events."""

    def operations(self) -> list[Operation]:
        """Return what it did; raises `EventUnknown` or `EventBroken`."""
        return fold(self.type, self.private)

    def is_about(self, csr_sha256: bytes) -> bool:
        """Tell whether it admits, renews or lets wait this CSR."""
        part = "certificate" if self.type in ("node.joined", "node.renewed") else "row"
        if self.type not in ("node.joined", "node.renewed", "join.waiting"):
            return False
        return bool(self.private[part]["csr_sha256"] == b64(csr_sha256))


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of the world that a request may have been judged in."""

    now: datetime
    """The time that judges."""
    hides: Callable[[PastEvent], bool]
    """Whether an event had not happened yet."""
    what: str
    """In words."""


def row_key(table: str, row: Mapping[str, Any]) -> Key:
    """Return the key of a row, or of an operation's."""
    return tuple(str(row[name]) for name in KEYS[table])


class Tables:
    """Rows of a few tables, as some events left them."""

    def __init__(self) -> None:
        """Have none."""
        self._rows: dict[str, dict[Key, Row]] = {}

    def of(self, table: str) -> dict[Key, Row]:
        """Return the rows of a table by key."""
        return self._rows.setdefault(table, {})

    def apply(self, operations: Iterable[Operation]) -> "Tables":
        """Do what events did; a change of a row that is not here changes nothing."""
        for operation in operations:
            rows = self.of(operation.table)
            match operation:
                case Put(table, row):
                    rows[row_key(table, row)] = dict(row)
                case Patch(table, key, changes, unless_set):
                    found = rows.get(row_key(table, key))
                    if found is not None:
                        late = {n: v for n, v in unless_set.items() if found.get(n) is None}
                        found |= {**changes, **late}
                case Add(table, key, column, amount):
                    found = rows.get(row_key(table, key))
                    if found is not None:
                        found[column] += amount
                case Delete(table, key):
                    rows.pop(row_key(table, key), None)
        return self


class Tail:
    """The last events of the journal, by the rows that they touched."""

    def __init__(self, events: Sequence[PastEvent]) -> None:
        """Take them in the order of `seq`; raises `EventUnknown` or `EventBroken`."""
        self.events = events
        self._by_row: dict[tuple[str, Key], list[tuple[PastEvent, Operation]]] = {}
        self._by_node: dict[str, list[PastEvent]] = {}
        for event in events:
            for operation in event.operations():
                found = operation.row if isinstance(operation, Put) else operation.key
                row = (operation.table, row_key(operation.table, found))
                self._by_row.setdefault(row, []).append((event, operation))
                if operation.table in NODE_TABLES:
                    of_node = self._by_node.setdefault(event.key, [])
                    if not of_node or of_node[-1] is not event:
                        of_node.append(event)

    def after(self, moment: Moment, table: str, key: Key) -> list[tuple[PastEvent, Operation]]:
        """Return what touched a row after a moment, in order."""
        return [one for one in self._by_row.get((table, key), ()) if moment.hides(one[0])]

    def touched_node(self, moment: Moment, node: str) -> bool:
        """Tell whether anything of a node changed after a moment."""
        return any(moment.hides(event) for event in self._by_node.get(node, ()))

    def touched_rows(self, moment: Moment, table: str) -> Iterable[tuple[Key, PastEvent]]:
        """Yield each row of a table that was touched after a moment, with the first event that did."""
        for (name, key), touches in self._by_row.items():
            if name == table:
                first = next((event for event, _ in touches if moment.hides(event)), None)
                if first is not None:
                    yield key, first
