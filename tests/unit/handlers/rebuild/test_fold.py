"""From events to operations, and to batches of them."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.handlers.rebuild.batches import Batch, batches
from watchword.handlers.rebuild.fold import (
    Add,
    Delete,
    EventBroken,
    EventUnknown,
    Operation,
    Patch,
    Put,
    fold,
)
from watchword.schemas.events import CommandEventType

JOINED: dict[str, Any] = {
    "node": {"id": "n1", "joined_at": 5, "state": "adopting", "version": 1},
    "certificate": {"csr_sha256": "new", "node_id": "n1"},
    "claims": [{"kind": "csr", "subject": "c"}],
    "subjects": [{"kind": "ek", "value": "v", "subject": "s"}],
    "bindings": [{"attestor": "tpm", "subject": "b"}],
    "uses": [{"attestor": "tpm", "subject": "u", "used_at": 5, "expires_at": None}],
    "spent": {"t1": 1},
    "token": "t1",
    "revoked": [],
    "revoked_at": None,
    "revoked_why": None,
}


def test_an_admission_touches_every_table_it_writes() -> None:
    """What is left out here could never be made again."""
    assert fold("node.joined", JOINED) == [
        Add("tokens", {"id": "t1"}, "uses_left", -1),
        Put("nodes", JOINED["node"]),
        Put("node_certs", JOINED["certificate"]),
        Put("admission_claims", {"kind": "csr", "subject": "c", "node_id": "n1"}),
        Put("node_subjects", {"kind": "ek", "value": "v", "subject": "s", "node_id": "n1"}),
        Put("node_bindings", {"attestor": "tpm", "subject": "b", "node_id": "n1"}),
        Put(
            "attestation_uses",
            {"attestor": "tpm", "subject": "u", "used_at": 5, "expires_at": None, "node_id": "n1"},
        ),
    ]


def test_a_rekey_keeps_when_the_node_first_joined_and_ends_the_old_certificate() -> None:
    """A certificate that was revoked before keeps the reason of then."""
    rekeyed = JOINED | {
        "node": {"id": "n1", "joined_at": None, "generation": 2},
        "revoked": ["old"],
        "revoked_at": 9,
        "revoked_why": "re-keyed",
    }
    done = fold("node.joined", rekeyed)
    assert Patch("nodes", {"id": "n1"}, {"generation": 2}) in done
    assert (
        Patch(
            "node_certs",
            {"csr_sha256": "old"},
            {"is_current": False},
            {"revoked_at": 9, "revoked_why": "re-keyed"},
        )
        in done
    )


def test_an_unknown_type_is_an_error() -> None:
    """Passing over it would make the comparison a lie."""
    with pytest.raises(EventUnknown, match=r"node\.painted"):
        fold("node.painted", {})


@pytest.mark.parametrize("private", [None, {}, {"row": {"tenant": "acme"}}, {"row": None}])
def test_an_event_without_what_it_needs_is_an_error(private: dict[str, Any] | None) -> None:
    """A writer that forgets a column must be found, not guessed for."""
    with pytest.raises(EventBroken, match=r"pool\.deleted"):
        fold("pool.deleted", private)


def _shapes(operations: list[Operation]) -> list[tuple[str, str, int]]:
    return [(b.kind.__name__, b.table, len(b.rows)) for b in batches(operations)]


def test_operations_of_one_shape_go_together_and_the_order_within_a_row_is_kept() -> None:
    """One statement for each row would take an hour; one that reorders would be wrong."""
    assert _shapes(
        [
            Put("tenants", {"id": "a"}),
            Put("pools", {"tenant": "a", "id": "x"}),
            Put("tenants", {"id": "b"}),
            Delete("tenants", {"id": "a"}),
            Put("tenants", {"id": "a"}),
        ]
    ) == [
        ("Put", "tenants", 2),
        ("Put", "pools", 1),
        ("Delete", "tenants", 1),
        ("Put", "tenants", 1),
    ]


def test_a_thousand_renewals_are_two_statements() -> None:
    """Each ends one certificate and adds another: in turns that is two statements for each, and a check of an hour."""
    operations: list[Operation] = []
    for number in range(1000):
        operations.append(Put("node_certs", {"csr_sha256": f"old-{number}", "is_current": True}))
        operations.append(
            Patch("node_certs", {"csr_sha256": f"old-{number}"}, {"is_current": False})
        )
        operations.append(Put("node_certs", {"csr_sha256": f"new-{number}", "is_current": True}))
    assert _shapes(operations) == [("Put", "node_certs", 2000), ("Patch", "node_certs", 1000)]


_IDS = st.sampled_from("abc")
_NUMBERS = st.integers(0, 3)
_OPERATIONS = st.lists(
    st.one_of(
        st.builds(lambda i, n: Put("tokens", {"id": i, "left": n, "by": None}), _IDS, _NUMBERS),
        st.builds(lambda i, n: Patch("tokens", {"id": i}, {"left": n}), _IDS, _NUMBERS),
        st.builds(lambda i, n: Patch("tokens", {"id": i}, {"left": n}, {"by": n}), _IDS, _NUMBERS),
        st.builds(lambda i, n: Add("tokens", {"id": i}, "left", n), _IDS, _NUMBERS),
        st.builds(lambda i: Delete("tokens", {"id": i}), _IDS),
    ),
    max_size=12,
)


@given(_OPERATIONS)
def test_batches_end_where_their_operations_do(operations: list[Operation]) -> None:
    """Whatever is put together, the rows are those that one operation after the other makes."""
    one_by_one: dict[str, dict[str, Any]] = {}
    for operation in operations:
        (batch,) = batches([operation])
        _apply(batch, one_by_one)
    together: dict[str, dict[str, Any]] = {}
    for batch in batches(operations):
        _apply(batch, together)
    assert together == one_by_one


def _apply(batch: Batch, rows: dict[str, dict[str, Any]]) -> None:
    """Do what the statement of a batch does."""
    for row in batch.rows.values():
        key, old = row["id"], rows.get(row["id"])
        if batch.kind is Put:
            rows[key] = dict(row)
        elif batch.kind is Delete:
            rows.pop(key, None)
        elif old is not None:
            for name in batch.columns:
                old[name] = row[name] + (old[name] if batch.kind is Add else 0)
            for name in batch.unless_set:
                old[name] = row[name] if old[name] is None else old[name]


def test_numbers_of_one_row_add_up_in_one_statement() -> None:
    """A hot token is spent a hundred thousand times; as many updates of one row would never end."""
    (batch,) = batches([Add("tokens", {"id": "t"}, "uses_left", -1) for _ in range(3)])
    assert list(batch.rows.values()) == [{"id": "t", "uses_left": -3}]


def test_two_changes_of_one_row_take_turns() -> None:
    """An UPDATE that joins two rows to one takes either."""
    assert _shapes(
        [Patch("nodes", {"id": "n"}, {"state": "a"}), Patch("nodes", {"id": "n"}, {"state": "b"})]
    ) == [("Patch", "nodes", 1), ("Patch", "nodes", 1)]


def test_what_is_folded_is_not_changed() -> None:
    """Batches add up in rows of their own: an event is a record."""
    first = Add("tokens", {"id": "t"}, "uses_left", -1)
    batches([first, Add("tokens", {"id": "t"}, "uses_left", -1)])
    assert first == Add("tokens", {"id": "t"}, "uses_left", -1)


@pytest.mark.parametrize("event_type", get_args(CommandEventType))
def test_each_event_of_a_command_has_its_whole_row(event_type: str) -> None:
    """Six events of one thing: whichever was last says how it is."""
    row = {"id": "c1", "state": "queued", "ended_at": None}
    assert fold(event_type, {"row": row}) == [Put("node_commands", row)]
