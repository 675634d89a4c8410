"""PostgreSQL goes away in the middle of a round."""

from itertools import count

import pytest

from tests.support.cut_connections import cut_at
from tests.support.journals import Reader, commit, committed_ids, event
from tests.support.kafka import KafkaTopics
from tests.support.relays import relay_options
from watchword.handlers.errors import StoreUnavailable
from watchword.handlers.store.connection import Connection, Database
from watchword.streams.relay.relay import Relay

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


async def test_a_relay_outlives_the_end_of_its_connection_at_whatever_statement(
    database: str,
    journal: Database,
    connection: Connection,
    topic: str,
    reader: Reader,
    kafka_topics: KafkaTopics,
) -> None:
    """A relay that ends for it leaves its shards to others, in the middle of an outage; and it loses nothing."""
    relay = Relay(relay_options(database, kafka_topics.bootstrap_servers, lease_s=60))

    published, nth = 0, 0
    for nth in count(1):
        await commit(journal, [event("node-1", nth, topic=topic)])
        with cut_at(nth) as statements:
            try:
                published = await relay.step()
            except StoreUnavailable:
                continue
        if statements.begun < nth:
            break
    await reader.read_until(await committed_ids(connection))
    await relay.close(is_idle=True)

    assert published > 0
    assert nth > 5, "hardly a whole round"
    assert reader.first_numbers("node-1") == list(range(1, nth + 1))
