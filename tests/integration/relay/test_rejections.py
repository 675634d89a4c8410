"""Rows that Kafka will not have."""

import asyncio
import json

import pytest

from tests.support.journals import Reader, commit, event
from tests.support.kafka import KafkaTopics
from tests.support.relays import relay_options, running
from tests.support.waiting import until
from watchword.handlers.errors import NotFound
from watchword.handlers.journal import Entry, shard_of
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.parking import park, parked
from watchword.streams.relay import metrics

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

_OVERSIZE = 30_000


@pytest.fixture
async def topic(kafka_topics: KafkaTopics) -> str:
    """Make a topic whose limit is below the journal's; one partition, so that all share a producer's fate."""
    return await kafka_topics.create("narrow", configs={"max.message.bytes": "20000"})


def _ids(*entries: Entry) -> set[str]:
    return {str(e.event_id) for e in entries}


def _other_keys(key: str, count: int) -> list[str]:
    """Return keys of other shards."""
    found = (f"other-{n}" for n in range(1000))
    return [name for name in found if shard_of(name.encode()) != shard_of(key.encode())][:count]


async def test_a_rejected_row_holds_up_its_key_alone_until_it_is_parked(
    database: str,
    journal: Database,
    connection: Connection,
    topic: str,
    reader: Reader,
    kafka_topics: KafkaTopics,
) -> None:
    """One bad row must neither stop the fleet for ever, nor be overtaken by what follows of its key."""
    first, second = event("bad", 1, topic=topic), event("bad", 2, topic=topic, filler=_OVERSIZE)
    third = event("bad", 3, topic=topic)
    others = [event(key, 1, topic=topic) for key in _other_keys("bad", 10)]
    async with running(relay_options(database, kafka_topics.bootstrap_servers)):
        await commit(journal, [first, second, *others, third])
        await reader.read_until(_ids(first, *others))
        await until(lambda: metrics.BLOCKED._value.get() == 1, "the shard is blocked")
        more = [event(key, 2, topic=topic) for key in _other_keys("bad", 10)]
        await commit(journal, more)
        await reader.read_until(_ids(*more))
        assert str(third.event_id) not in reader.ids()

        assert await park(journal, second.event_id, who="ops", why="too large")
        await reader.read_until(_ids(third))
        await until(lambda: metrics.BLOCKED._value.get() == 0, "the shard is free")
        assert not await park(journal, second.event_id, who="ops", why="again")
        with pytest.raises(NotFound):
            await park(journal, first.event_id, who="ops", why="it is published")
        await reader.read_to_the_end()

    assert str(second.event_id) not in reader.ids()
    assert reader.first_numbers("bad") == [1, 3]
    (row,) = await parked(journal)
    assert (row.event_id, row.who, row.why) == (second.event_id, "ops", "too large")
    audit = await connection.fetchrow("SELECT who, action, target, why, detail FROM audit_log")
    assert audit is not None
    assert tuple(audit)[:4] == ("ops", "journal.park", str(second.event_id), "too large")
    assert json.loads(audit["detail"])["topic"] == topic


async def test_a_rejection_does_not_wedge_the_partition(
    database: str, journal: Database, topic: str, reader: Reader, kafka_topics: KafkaTopics
) -> None:
    """An idempotent producer fails on a partition for good after one rejection, unless it is replaced."""
    bad = event("bad", 1, topic=topic, filler=_OVERSIZE)
    async with running(relay_options(database, kafka_topics.bootstrap_servers)):
        await commit(journal, [bad])
        await until(lambda: metrics.BLOCKED._value.get() == 1, "the shard is blocked")
        for number in range(5):
            entries = [event(key, number, topic=topic) for key in _other_keys("bad", 5)]
            await commit(journal, entries)
            await reader.read_until(_ids(*entries), within_s=5)


async def test_headers_that_are_no_text_are_a_rejection(
    database: str, journal: Database, topic: str, reader: Reader, kafka_topics: KafkaTopics
) -> None:
    """A row that the relay itself cannot turn into a record blocks its shard, not the process."""
    bad = event("bad", 1, topic=topic, headers='{"ce_id": null}')
    other = event(_other_keys("bad", 1)[0], 1, topic=topic)
    async with running(relay_options(database, kafka_topics.bootstrap_servers)):
        await commit(journal, [bad, other])
        await reader.read_until(_ids(other))
        await until(lambda: metrics.BLOCKED._value.get() == 1, "the shard is blocked")
        assert await park(journal, bad.event_id, who="ops", why="no id")
        await until(lambda: metrics.BLOCKED._value.get() == 0, "the shard is free", within_s=15)


async def test_a_missing_topic_is_named_and_waited_for(
    database: str, journal: Database, topic: str, reader: Reader, kafka_topics: KafkaTopics
) -> None:
    """Forgetting `topics apply` stops what needs that topic, says so, and loses nothing."""
    name = kafka_topics.name("later")
    waits = event("waits", 1, topic=name)
    other = event(_other_keys("waits", 1)[0], 1, topic=topic)
    options = relay_options(database, kafka_topics.bootstrap_servers)
    async with running(options):
        await commit(journal, [waits, other])
        await reader.read_until(_ids(other))
        health = options.lifecycle.health
        await until(lambda: name in health.problems().get("kafka", ""), "readiness names the topic")
        await kafka_topics.create("later")
        late = Reader(kafka_topics.bootstrap_servers, [name])
        await late.start()
        await late.read_until(_ids(waits))
        await late.stop()
        await until(lambda: not health.problems(), "ready again")
        await asyncio.sleep(0)
