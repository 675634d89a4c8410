"""What may be committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.streams.worker.prefix import Anchor, OffsetSkipped, Prefix, anchor

offsets = st.integers(min_value=0, max_value=2**62)


@given(start=offsets, answered=st.permutations(range(12)), upto=st.integers(0, 12))
def test_the_committable_offset_never_passes_an_unanswered_record(
    start: int, answered: list[int], upto: int
) -> None:
    """It is the promise that nothing is lost: Kafka redelivers from the committed offset on."""
    prefix = Prefix(start)
    for index in range(12):
        assert prefix.deliver(start + index)
    done: set[int] = set()
    for index in answered[:upto]:
        prefix.done(start + index)
        done.add(index)
        first_open = next((i for i in range(13) if i not in done), 12)
        assert prefix.committable == start + first_open


@given(start=offsets, gap=st.integers(min_value=1, max_value=10**6))
def test_a_gap_is_an_alarm_and_changes_nothing(start: int, gap: int) -> None:
    prefix = Prefix(start)
    with pytest.raises(OffsetSkipped) as caught:
        prefix.deliver(start + gap)
    assert (caught.value.expected, caught.value.delivered) == (start, start + gap)
    assert (prefix.expected, prefix.committable) == (start, start)


@given(start=st.integers(1, 10**9), back=st.integers(min_value=1, max_value=10**9))
def test_a_repeat_is_no_new_delivery(start: int, back: int) -> None:
    prefix = Prefix(start)
    assert prefix.deliver(start)
    assert not prefix.deliver(start + 1 - back)
    assert prefix.expected == start + 1


def test_what_was_never_delivered_cannot_be_done() -> None:
    prefix = Prefix(5)
    with pytest.raises(ValueError, match="not delivered"):
        prefix.done(5)


def test_done_twice_is_done_once() -> None:
    prefix = Prefix(5)
    for offset in (5, 6):
        prefix.deliver(offset)
    for offset in (6, 6, 5, 5, 6):
        prefix.done(offset)
    assert prefix.committable == 7


@pytest.mark.parametrize(
    ("committed", "start", "end", "begin"),
    [
        pytest.param(None, 0, 0, Anchor(0), id="an empty log nobody has read"),
        pytest.param(None, 40, 90, Anchor(40), id="nobody has read, retention was there"),
        pytest.param(60, 40, 90, Anchor(60), id="the committed offset"),
        pytest.param(90, 40, 90, Anchor(90), id="everything is done"),
        pytest.param(40, 40, 90, Anchor(40), id="at the log's start"),
        pytest.param(0, 0, 90, Anchor(0), id="zero is committed and not nothing"),
        pytest.param(30, 40, 90, Anchor(40, lost=10), id="retention passed the group"),
        pytest.param(91, 40, 90, Anchor(40, truncated=True), id="the log was truncated"),
    ],
)
def test_a_partition_begins_where_nothing_is_passed_over(
    committed: int | None, start: int, end: int, begin: Anchor
) -> None:
    assert anchor(committed, start, end) == begin
