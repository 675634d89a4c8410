"""Hostile records on `join.requests`, as the guarded parser delivers them."""

import gzip

import aiokafka
import pytest
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_UNCOMMITTED, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import ConsumerRecord, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from tests.support.record_batches import CONTROL, GZIP, LZ4, Batch
from watchword.streams.worker import records
from watchword.streams.worker.records import GuardedRecords, WrongVersion
from watchword.streams.worker.unreadable import Extent, Fault, Unreadable

Message = ConsumerRecord[bytes | None, bytes | None]


def fetched(*batches: Batch | bytes, position: int = 0) -> list[Message]:
    """Return what aiokafka's fetcher makes of a buffer, from a position on."""
    buffer = b"".join(b if isinstance(b, bytes) else b.raw for b in batches)
    parsed = PartitionRecords(
        TopicPartition("join.requests", 0),
        GuardedRecords(buffer),
        [],
        position,
        None,
        None,
        check_crcs=True,
        isolation_level=READ_UNCOMMITTED,
    )
    return list(parsed)


def seen(messages: list[Message]) -> list[tuple[int, bytes | None, Fault | None]]:
    return [
        (m.offset, m.value, m.value.fault if isinstance(m.value, Unreadable) else None)
        for m in messages
    ]


def unreadable(message: Message) -> Unreadable:
    assert isinstance(message.value, Unreadable)
    return message.value


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=300),
            st.none() | st.binary(max_size=2000),
            st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50))),
        ),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
)
def test_good_records_are_what_they_are_without_the_guard(
    content: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    compressed: bool,  # noqa: FBT001 - hypothesis passes it
) -> None:
    builder = DefaultRecordBatchBuilder(2, int(compressed), 0, -1, -1, -1, 1 << 24)
    for index, (key, value, headers) in enumerate(content):
        builder.append(index, 1000, key, value, headers)

    messages = fetched(bytes(builder.build()))

    assert [(m.key, m.value, list(m.headers)) for m in messages] == content
    assert [m.offset for m in messages] == list(range(len(content)))
    assert not any(isinstance(m.value, Unreadable) for m in messages)


@pytest.mark.parametrize("poison", [0, 1, 2])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_a_header_name_that_is_no_text_costs_its_neighbours_nothing(
    poison: int, *, compressed: bool
) -> None:
    """One such record would end every worker of the group, again and again."""
    batch = Batch([b"first", b"second", b"third"], base=70, named=[poison]).renamed()
    messages = fetched(batch.gzipped() if compressed else batch, position=70)

    assert [m.offset for m in messages] == [70, 71, 72]
    assert [m.value for m in messages] == [b"first", b"second", b"third"]
    assert [m.key for m in messages] == [b"key-0", b"key-1", b"key-2"]
    assert [m.timestamp for m in messages] == [1000, 1001, 1002]
    faults = [fault for _, _, fault in seen(messages)]
    assert faults == [Fault.HEADER_NAME if i == poison else None for i in range(3)]
    assert unreadable(messages[poison]).extent is Extent.VALUE


def test_a_tombstone_with_such_a_header_says_that_it_has_no_bytes() -> None:
    (message,) = fetched(Batch([None], named=[0]).renamed())
    assert unreadable(message).extent is Extent.NOTHING


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([0, 5, 2], id="ahead"),
        pytest.param([0, 1_000_000, 2], id="far ahead"),
        pytest.param([0, 0, 2], id="twice the same"),
        pytest.param([0, -7, 2], id="back"),
    ],
)
def test_a_record_that_lies_about_its_offset_stays_in_its_place(deltas: list[int]) -> None:
    """A broker does not look at it, and a jump would be taken for a loss, which ends the process."""
    messages = fetched(Batch([b"a", b"b", b"c"], base=10, deltas=deltas), position=10)
    assert seen(messages) == [(10, b"a", None), (11, b"b", Fault.OFFSET), (12, b"c", None)]


def test_a_broken_record_is_kept_whole_and_the_next_one_is_read() -> None:
    batch = Batch([b"a", b"b" * 20, b"c"])
    # The length of the key becomes larger than the record.
    batch.sign(batch.raw[61:].replace(b"\x0akey-1", b"\x7ekey-1"))

    messages = fetched(batch)

    assert [fault for _, _, fault in seen(messages)] == [None, Fault.RECORD, None]
    assert unreadable(messages[1]).extent is Extent.RECORD
    assert b"b" * 20 in bytes(unreadable(messages[1]))
    assert messages[2].value == b"c"


def test_a_broken_length_costs_the_rest_of_its_batch_but_not_the_next_batch() -> None:
    batch = Batch([b"a", b"b", b"c"])
    body = bytearray(batch.raw[61:])
    length_of_first = body[0] // 2 + 1
    body[length_of_first] = 0x7E
    batch.sign(bytes(body))

    messages = fetched(batch, Batch([b"d"], base=3))

    assert [m.offset for m in messages] == [0, 1, 2, 3]
    assert [fault for _, _, fault in seen(messages)] == [None, Fault.RECORD, Fault.RECORD, None]
    assert b"key-1" in bytes(unreadable(messages[1]))
    assert b"key-2" in bytes(unreadable(messages[1]))
    assert unreadable(messages[2]).extent is Extent.NOTHING


def test_a_batch_in_a_compression_that_we_lack_is_kept_whole() -> None:
    batch = Batch([b"a", b"b", b"c"], attributes=LZ4)
    messages = fetched(batch, Batch([b"d"], base=3))
    assert [m.offset for m in messages] == [0, 1, 2, 3]
    assert [fault for _, _, fault in seen(messages)] == [*[Fault.COMPRESSION] * 3, None]
    assert unreadable(messages[0]) == batch.raw
    assert [unreadable(m).extent for m in messages[:3]] == [
        Extent.BATCH,
        Extent.NOTHING,
        Extent.NOTHING,
    ]


@pytest.mark.parametrize("cut", [1, 30])
def test_broken_gzip_is_kept_whole(cut: int) -> None:
    batch = Batch([b"a" * 500, b"b"])
    batch.gzipped()
    batch.sign(batch.raw[61:-cut])
    assert [fault for _, _, fault in seen(fetched(batch))] == [Fault.COMPRESSION] * 2


def test_a_bomb_is_not_expanded() -> None:
    """512 KiB of gzip are half a gigabyte, in the memory of every worker in turn."""
    batch = Batch([b"a"])
    batch.attributes |= GZIP
    batch.sign(gzip.compress(bytes(records.MAX_EXPANDED_BYTES + 1)))
    assert [fault for _, _, fault in seen(fetched(batch))] == [Fault.COMPRESSION]


def test_a_marker_of_a_transaction_takes_up_its_offset() -> None:
    """Anybody may write in transactions; a left-out offset would be taken for a loss."""
    messages = fetched(
        Batch([b"a"]), Batch([b"\0\0\0\0"], base=1, attributes=CONTROL), Batch([b"b"], base=2)
    )
    assert [(o, f) for o, _, f in seen(messages)] == [(0, None), (1, Fault.CONTROL), (2, None)]
    assert unreadable(messages[1]) == b""


def test_a_batch_that_has_fewer_records_than_it_says_is_filled_up() -> None:
    batch = Batch([b"a"], last_delta=2)
    assert [(o, f) for o, _, f in seen(fetched(batch))] == [
        (0, None),
        (1, Fault.BATCH),
        (2, Fault.BATCH),
    ]


def test_a_wrong_checksum_is_fetched_again_before_it_counts() -> None:
    """The way from the broker may have done it; what comes behind has to wait."""
    good = Batch([b"first"])
    bad = Batch([b"a", b"checksum"], base=1)
    bad.raw = bad.raw[:-1] + b"\x7f"
    behind = Batch([b"behind"], base=3)

    for _ in range(2):
        assert seen(fetched(good, bad, behind)) == [(0, b"first", None)]

    assert [(o, f) for o, _, f in seen(fetched(good, bad, behind))] == [
        (0, None),
        (1, Fault.CHECKSUM),
        (2, Fault.CHECKSUM),
        (3, None),
    ]


def test_the_position_stays_on_a_batch_that_is_fetched_again() -> None:
    bad = Batch([b"position", b"of"], base=1)
    bad.raw = bad.raw[:-1] + b"\x7f"
    (batch,) = [GuardedRecords(bad.raw).next_batch()]
    assert batch is not None
    assert batch.next_offset == 1


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_is_passed_over_by_one_offset(magic: int) -> None:
    batch = Batch([b"a"], base=4)
    batch.raw = batch.raw[:16] + bytes([magic]) + batch.raw[17:]
    assert [(o, f) for o, _, f in seen(fetched(batch, position=4))] == [(4, Fault.BATCH)]


def test_a_batch_that_a_broker_cut_off_waits_for_the_next_fetch() -> None:
    whole, cut_off = Batch([b"a"]), Batch([b"b"], base=1)
    assert [m.offset for m in fetched(whole, cut_off.raw[:-1])] == [0]
    assert [m.offset for m in fetched(whole, cut_off.raw[:5])] == [0]


def test_a_position_within_a_batch_is_kept() -> None:
    batch = Batch([b"a", b"b", b"c"], named=[1]).renamed()
    assert [m.offset for m in fetched(batch, position=1)] == [1, 2]


@given(st.binary(max_size=400))
def test_no_bytes_make_the_parser_raise(noise: bytes) -> None:
    fetched(noise)


@given(data=st.data())
def test_no_change_to_a_batch_makes_the_parser_raise_or_leave_a_gap(data: st.DataObject) -> None:
    batch = Batch([b"value-a", b"value-b", None], base=5, named=[0, 2])
    body = bytearray(batch.raw[61:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    batch.sign(bytes(body))
    assert [m.offset for m in fetched(batch, position=5)] == [5, 6, 7]


def test_the_guard_is_for_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka, "__version__", "0.14.1")
    with pytest.raises(WrongVersion, match=r"0\.14\.1"):
        records.install()


def test_the_guard_takes_the_place_of_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "MemoryRecords", object)
    records.install()
    assert vars(fetcher)["MemoryRecords"] is GuardedRecords
