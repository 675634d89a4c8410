"""Which partition a key belongs to, and which errors are a record's."""

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    UnknownError,
)
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from watchword.streams.relay.publisher import _headers, _is_rejection, _partition


@given(key=st.binary(min_size=1, max_size=64), partitions=st.integers(1, 50))
def test_a_key_goes_where_every_default_client_sends_it(key: bytes, partitions: int) -> None:
    """Else its events were on two partitions as soon as anybody else writes them, or we change."""
    numbers = list(range(partitions))
    assert _partition(key, partitions) == DefaultPartitioner()(key, numbers, numbers)


@pytest.mark.parametrize(
    ("error", "is_rejection"),
    [
        (MessageSizeTooLargeError(), True),
        (UnknownError(), True),  # among others a record that a compacted topic does not take
        (OutOfOrderSequenceNumber(), False),
        (NotLeaderForPartitionError(), False),
        (KafkaConnectionError(), False),
    ],
)
def test_an_error_is_of_the_record_or_of_something_else(
    error: KafkaError, *, is_rejection: bool
) -> None:
    """A shard is blocked for the one, and only waits for the other."""
    assert _is_rejection(error) == is_rejection


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}', '{"a": null}', '"a"', "null"])
def test_headers_that_are_no_object_of_text_are_seen(text: str) -> None:
    """They would raise inside the client, in the middle of a wave."""
    assert _headers(text) is None


def test_headers_become_text_and_bytes() -> None:
    assert _headers('{"ce_id": "é"}') == [("ce_id", "é".encode())]
