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

_LOW_BITS = (1 << 32) - 1

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
class Mark:
    """A domain event of the journal: when it was, and what it was about."""

    seq: int
    xid: int
    recorded_at: datetime
    """PostgreSQL's clock when the row was written: after every lock of its transaction."""
    occurred_at: datetime
    """The time that judged and stamped its attempt."""
    type: str
    key: str
    csr_sha256: str | None = None
    """The CSR that it admits, renews or lets wait, as the journal has it."""
    place: tuple[str, str | None] | None = None
    """Tenant and site of a join that waits; None of other events."""
    was_decided: bool = False
    """Whether a join that expired had been approved."""


@dataclass(frozen=True, slots=True, eq=False)
class PastEvent:
    """An event with what it did."""

    mark: Mark
    private: Mapping[str, Any] = field(repr=False)

    def operations(self) -> list[Operation]:
        """Return what it did; raises `EventUnknown` or `EventBroken`."""
        return fold(self.mark.type, self.private)


@dataclass(frozen=True, slots=True)
class Touch:
    """What an event did to one row, and no more than has to be known to look behind it."""

    mark: Mark
    did: type[Operation]
    amount: int = 0
    """What it added to a number."""
    revokes: bool = False
    """Whether it set the time of a revocation."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of the world that a request may have been judged in."""

    now: datetime
    """The time that judges."""
    hides: Callable[[Mark], bool]
    """Whether an event had not happened yet."""
    what: str
    """In words."""


Look = tuple[Moment, Moment]
"""What a request may have been judged by: the moment of what was read, and that of what the locks showed."""


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
    """The last events of the journal, by the rows that they touched. Their contents are not kept."""

    def __init__(self, events: Iterable[PastEvent] = ()) -> None:
        """Take events in the order of `seq`; more may be added."""
        self.marks: list[Mark] = []
        self._by_row: dict[str, dict[Key, list[Touch]]] = {}
        self._by_node: dict[str, list[Mark]] = {}
        self._by_csr: dict[str, list[Mark]] = {}
        self._by_xid: dict[int, list[Mark]] = {}
        for event in events:
            self.add(event)

    def add(self, event: PastEvent) -> None:
        """Take the next event; raises `EventUnknown` or `EventBroken`."""
        mark = event.mark
        self.marks.append(mark)
        self._by_xid.setdefault(mark.xid & _LOW_BITS, []).append(mark)
        if mark.csr_sha256 is not None:
            self._by_csr.setdefault(mark.csr_sha256, []).append(mark)
        is_nodes = False
        for operation in event.operations():
            found = operation.row if isinstance(operation, Put) else operation.key
            touch = Touch(
                mark,
                type(operation),
                operation.amount if isinstance(operation, Add) else 0,
                isinstance(operation, Patch) and "revoked_at" in operation.changes,
            )
            rows = self._by_row.setdefault(operation.table, {})
            rows.setdefault(row_key(operation.table, found), []).append(touch)
            is_nodes = is_nodes or operation.table in NODE_TABLES
        if is_nodes:
            self._by_node.setdefault(mark.key, []).append(mark)

    def after(self, moment: Moment, table: str, key: Key) -> list[Touch]:
        """Return what touched a row after a moment, in order."""
        touches = self._by_row.get(table, {}).get(key, ())
        return [one for one in touches if moment.hides(one.mark)]

    def about(self, csr_sha256: bytes) -> Sequence[Mark]:
        """Return the events that admit, renew or let wait this CSR."""
        return self._by_csr.get(b64(csr_sha256), ())

    def of_transaction(self, xid: int) -> Sequence[Mark]:
        """Return the events of a transaction, by the lower 32 bits of its number."""
        return self._by_xid.get(xid & _LOW_BITS, ())

    def touched_node(self, moment: Moment, node: str) -> bool:
        """Tell whether anything of a node changed after a moment."""
        return any(moment.hides(mark) for mark in self._by_node.get(node, ()))

    def touched_rows(self, moment: Moment, table: str) -> Iterable[Mark]:
        """Yield of each row of a table that was touched after a moment the first event that did."""
        for touches in self._by_row.get(table, {}).values():
            first = next((one.mark for one in touches if moment.hides(one.mark)), None)
            if first is not None:
                yield first
