"""What a relay knows of its shards between two looks."""

from datetime import UTC, datetime
from uuid import uuid4

from watchword.handlers.snapshots import Floor
from watchword.handlers.store.relay import Cursor, Row
from watchword.streams.relay.shards import Shards, Trouble, View, Wave

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def _row(shard: int, seq: int) -> Row:
    return Row(shard, seq, uuid4(), "t", b"k", "{}", b"", NOON)


def _cursor(shard: int, *, epoch: int = 1, seen: str = "1:1:") -> Cursor:
    return Cursor(shard, epoch, seen, Floor("old", 3))


def _looked(shards: Shards, view: View) -> None:
    """Look and find nothing."""
    wave = Wave(view, list(shards.owned))
    shards.settle(shards.advanced(wave, wave.read), are_stored=False)
    shards.reached(view)


def _held(*numbers: int) -> Shards:
    shards = Shards()
    shards.hold([_cursor(n) for n in numbers])
    return shards


def test_shards_over_which_nothing_came_are_in_step_and_read_by_one_query() -> None:
    """Thirty-two queries for nothing, forty times a second, would be the whole of a core."""
    shards = _held(1, 2)
    assert shards.in_step() == []
    _looked(shards, View("5:5:", 10, Floor("new", 9)))
    assert shards.in_step() == [1, 2]
    assert shards.behind() == []
    assert shards.floor_at([1, 2]) == "new"
    assert [s.stored.from_snapshot for s in shards.unstored()] == ["1:1:", "1:1:"]


def test_a_cut_batch_goes_on_behind_its_last_row_and_is_closed_when_nothing_is_left() -> None:
    """A relay that forgot the end of a batch stalled its shard for ever, without an error."""
    shards = _held(1)
    view = View("5:5:", 10, Floor("new", 4))
    wave = Wave(view, [1], [_row(1, 6), _row(1, 8)], cut={1})
    shards.settle(shards.advanced(wave, [1]), are_stored=True)
    assert shards.owned[1].cursor == Cursor(1, 1, "1:1:", Floor("old", 3), "5:5:", 8)

    later = View("9:9:", 20, Floor("newer", 15))
    interval = shards.owned[1].interval(later)
    assert (interval.until, interval.after_seq, interval.up_to_seq) == ("5:5:", 8, 10)
    wave = Wave(later, [1])
    shards.settle(shards.advanced(wave, [1]), are_stored=True)
    assert shards.owned[1].cursor == Cursor(1, 1, "5:5:", Floor("new", 4))


def test_a_batch_that_another_owner_cut_is_finished_without_its_bounds() -> None:
    """The heir knows the end's snapshot, and neither its seq nor its floor; guessing would lose rows."""
    shards = Shards()
    shards.hold([Cursor(1, 2, "1:1:", Floor("old", 3), "5:5:", 8)])
    later = View("9:9:", 20, Floor("newer", 15))
    interval = shards.owned[1].interval(later)
    assert (interval.until, interval.after_seq) == ("5:5:", 8)
    assert interval.up_to_seq > 10**12
    shards.settle(shards.advanced(Wave(later, [1]), [1]), are_stored=True)
    assert shards.owned[1].cursor == Cursor(1, 2, "5:5:", Floor("old", 3))


def test_a_shard_whose_wave_failed_stays_and_is_behind() -> None:
    """Only what was acknowledged moves; the others go on."""
    shards = _held(1, 2)
    _looked(shards, View("5:5:", 10, None))
    view = View("7:7:", 12, None)
    wave = Wave(view, [1, 2], [_row(1, 11), _row(2, 12)])
    shards.settle(shards.advanced(wave, [2]), are_stored=True)
    shards.reached(view)
    assert shards.behind() == [1]
    assert shards.in_step() == [2]
    assert shards.owned[1].interval(view).seen == "5:5:"


def test_a_shard_that_comes_back_under_another_epoch_starts_where_it_is_stored() -> None:
    """In between another relay had it: what we remember of it is not true any more."""
    shards = _held(1)
    _looked(shards, View("5:5:", 10, None))
    shards.hold([_cursor(1)])
    assert shards.owned[1].cursor.from_snapshot == "5:5:"
    shards.hold([_cursor(1, epoch=3, seen="4:4:")])
    assert shards.owned[1].cursor.from_snapshot == "4:4:"


def test_a_troubled_shard_is_left_out_until_its_time() -> None:
    """It goes alone, and not all the time."""
    shards = _held(1, 2)
    shards.owned[1].trouble = Trouble(retry_at=100.0, delay_s=1.0)
    assert shards.behind() == [2]
    assert shards.troubled(99.0) == []
    assert shards.troubled(100.0) == [1]
