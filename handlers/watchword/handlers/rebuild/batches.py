"""Operations in batches that can be applied with one statement each. Pure.

Operations on different tables do not meet, and neither do operations on different rows of one: only
the order within a row is kept. Those of one kind and shape go together, as long as each touches
another row; so a journal in which every renewal ends one certificate and adds another is a few
statements, and not two for each renewal.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from watchword.handlers.rebuild.fold import KEYS, Add, Delete, Operation, Patch, Put, Row

Shape = tuple[str, ...]


@dataclass(slots=True)
class Batch:
    """Rows for one statement: of kind `kind`, on `table`; `columns` are set, `unless_set` only where null."""

    kind: type[Operation]
    table: str
    columns: Shape
    unless_set: Shape = ()
    rows: dict[Shape, Row] = field(default_factory=dict[Shape, Row])

    @property
    def shape(self) -> Hashable:
        """What batches have in common whose rows one statement could take."""
        return self.kind, self.table, self.columns, self.unless_set


def batches(operations: Iterable[Operation]) -> list[Batch]:
    """Return the operations in batches, in an order that ends where theirs does."""
    done: list[Batch] = []
    of_shape: dict[Hashable, list[int]] = {}
    latest: dict[Hashable, int] = {}
    for operation in operations:
        wanted, row = _one(operation)
        key = tuple(str(row[name]) for name in KEYS[operation.table])
        # A row that is put twice is as it was put last, and numbers add up; the rest must take turns.
        before = latest.get((wanted.table, key), -1)
        earliest = before if wanted.kind in (Put, Add) else before + 1
        places = of_shape.setdefault(wanted.shape, [])
        place = next((place for place in places if place >= earliest), len(done))
        if place == len(done):
            places.append(place)
            done.append(wanted)
        latest[wanted.table, key] = place
        rows = done[place].rows
        if isinstance(operation, Add) and key in rows:
            rows[key][operation.column] += operation.amount
        else:
            rows[key] = row
    return done


def _one(operation: Operation) -> tuple[Batch, Row]:
    match operation:
        case Put(table, row):
            return Batch(Put, table, tuple(sorted(row))), dict(row)
        case Patch(table, key, changes, unless_set):
            batch = Batch(Patch, table, tuple(sorted(changes)), tuple(sorted(unless_set)))
            return batch, {**key, **changes, **unless_set}
        case Add(table, key, column, amount):
            return Batch(Add, table, (column,)), {**key, column: amount}
        case Delete(table, key):
            return Batch(Delete, table, ()), dict(key)
