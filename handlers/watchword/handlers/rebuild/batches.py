"""Operations in batches that can be applied with one statement each. Pure.

Operations on different tables do not meet, so only the order within a table is kept: neighbours of
one kind and shape go together, as long as each touches another row.
"""

from collections.abc import Iterable
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


def batches(operations: Iterable[Operation]) -> list[Batch]:
    """Return the operations in batches, in an order that ends where theirs does."""
    done: list[Batch] = []
    latest: dict[str, Batch] = {}
    for operation in operations:
        wanted, row = _one(operation)
        key = tuple(str(row[name]) for name in KEYS[operation.table])
        batch = latest.get(operation.table)
        if batch is None or not _fits(batch, wanted, key):
            batch = wanted
            latest[operation.table] = batch
            done.append(batch)
        if isinstance(operation, Add) and key in batch.rows:
            batch.rows[key][operation.column] += operation.amount
        else:
            batch.rows[key] = row
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


def _fits(batch: Batch, wanted: Batch, key: Shape) -> bool:
    is_same = (batch.kind, batch.columns, batch.unless_set) == (
        wanted.kind,
        wanted.columns,
        wanted.unless_set,
    )
    # A row that is put twice is as it was put last, and numbers add up; the rest must take turns.
    return is_same and (batch.kind in (Put, Add) or key not in batch.rows)
