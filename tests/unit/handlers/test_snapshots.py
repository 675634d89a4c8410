"""Snapshots as values, and the floor under what they hide."""

from hypothesis import given
from hypothesis import strategies as st

from watchword.handlers.snapshots import Floor, Horizon, Mark, Snapshot

XIDS = st.integers(min_value=1, max_value=30)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """Return two snapshots of one history, the later one second."""
    xmax = draw(XIDS)
    running = draw(st.sets(st.integers(min_value=1, max_value=xmax), max_size=5)) - {xmax}
    later_xmax = draw(st.integers(min_value=xmax, max_value=40))
    still = {xid for xid in running if draw(st.booleans())}
    begun = draw(st.sets(st.integers(min_value=xmax, max_value=40), max_size=5))
    later = still | {xid for xid in begun if xid < later_xmax}
    return _snapshot(xmax, running), _snapshot(later_xmax, later)


def _snapshot(xmax: int, running: set[int]) -> Snapshot:
    return Snapshot(min(running | {xmax}), xmax, tuple(sorted(running)))


def test_a_snapshot_is_read_and_written_as_postgresql_does() -> None:
    for text in ("1:1:", "10:20:10,14,15", "734:734:"):
        assert str(Snapshot.parse(text)) == text


@given(history=histories(), xid=XIDS)
def test_a_snapshot_cut_at_a_transaction_lies_between_the_two(
    history: tuple[Snapshot, Snapshot], xid: int
) -> None:
    """Else a look that stops there would count something twice, or never."""
    earlier, later = history
    at = max(xid, earlier.xmax - 1)
    cut = later.up_to(at)
    for one in range(1, 45):
        assert not earlier.sees(one) or cut.sees(one)
        assert not cut.sees(one) or later.sees(one)
        assert cut.sees(one) == (later.sees(one) and one <= at)
    assert cut.xmin == min((*cut.running, cut.xmax))


def test_a_floor_holds_only_when_what_began_before_it_has_ended() -> None:
    """A transaction older than the mark may yet record a row with an earlier time and a lower seq."""
    mark = Mark(50, Floor("noon", 7))
    horizon = Horizon().marked(mark)
    assert horizon.seen(Snapshot(40, 60, (40,))).floor is None
    assert horizon.seen(Snapshot(50, 60, (50,))).floor is None
    assert horizon.seen(Snapshot(51, 60, (51,))).floor == Floor("noon", 7)


def test_a_long_transaction_keeps_the_floor_and_then_it_moves_on() -> None:
    """Marks go on being made; the first that the transaction is older than waits for it."""
    horizon = Horizon().marked(Mark(10, Floor("a", 1)))
    horizon = horizon.seen(Snapshot(11, 11)).marked(Mark(20, Floor("b", 2)))
    for xid in range(30, 60, 10):
        horizon = horizon.marked(Mark(xid, Floor("later", xid))).seen(Snapshot(15, xid, (15,)))
        assert horizon.floor == Floor("a", 1)
    horizon = horizon.seen(Snapshot(70, 70))
    assert horizon.floor == Floor("b", 2)
    assert horizon.seen(Snapshot(70, 70)).floor == Floor("later", 50)
