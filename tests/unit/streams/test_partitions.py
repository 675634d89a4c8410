"""Which partition a key goes to."""

from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from watchword.streams.partitions import default_partition


@given(key=st.binary(max_size=80), count=st.integers(1, 100))
def test_a_key_goes_where_every_other_client_sends_it(key: bytes, count: int) -> None:
    """An agent straight on Kafka waits for its answer on the partition of its key, and on no other."""
    every = list(range(count))
    assert default_partition(key, every, every) == DefaultPartitioner()(key, every, every)


def test_what_has_no_key_goes_where_it_can() -> None:
    """A dead letter may have no key, and the leader of a partition may be away."""
    assert default_partition(None, [0, 1, 2], [1]) == 1
    assert default_partition(None, [0, 1, 2], []) in {0, 1, 2}
