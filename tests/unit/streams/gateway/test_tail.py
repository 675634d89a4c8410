"""Following a topic: what a broker says of its ends is older than what was read meanwhile."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from watchword.streams.gateway import tail as module
from watchword.streams.gateway.kafka_ports import Record
from watchword.streams.gateway.tail import Tail
from watchword.streams.kafka_clients import KafkaConnection

TOPIC = "join.responses"
PARTITION = TopicPartition(TOPIC, 0)


class Scripted:
    """A consumer of one partition: what comes when, and what the broker says of the end."""

    def __init__(self, records: int, ends: Iterable[int]) -> None:
        """Have some records, and answers to the question for the end; the last one stays."""
        self.records = records
        self.ends = iter(ends)
        self.end = 0
        self.at = 0
        self.seeks: list[int] = []
        self.asked = 0
        self.before_answer = 0
        """How many more records come while the broker answers."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def assignment(self) -> set[TopicPartition]:
        return {PARTITION}

    def highwater(self, _: TopicPartition) -> int:
        return self.records

    async def position(self, _: TopicPartition) -> int:
        return self.at

    def seek(self, _: TopicPartition, offset: int) -> None:
        self.seeks.append(offset)
        self.at = offset

    async def getone(self, *_: TopicPartition) -> Record:
        while self.at >= self.records:  # noqa: ASYNC110 - turns of the loop are all there is
            await asyncio.sleep(0)
        self.at += 1
        found: Any = SimpleNamespace(topic=TOPIC, partition=0, offset=self.at - 1)
        return found  # type: ignore[no-any-return] # as much of a record as is looked at

    async def end_offsets(self, _: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked += 1
        self.end = next(self.ends, self.end)
        self.records += self.before_answer
        while self.at < self.records:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0)
        return {PARTITION: self.end}


async def follow(consumer: Scripted, monkeypatch: pytest.MonkeyPatch, probes: int) -> list[int]:
    """Follow until the broker was asked so often; return the offsets that were delivered."""
    monkeypatch.setattr(module, "new_consumer", lambda *_, **__: consumer)
    monkeypatch.setattr(module, "_PROBE_S", 0.0)
    delivered: list[int] = []
    tail = Tail(
        KafkaConnection("nowhere:1"),
        TOPIC,
        lambda record: delivered.append(record.offset),
        lookback_s=None,
    )
    running = asyncio.create_task(tail.run())
    try:
        async with asyncio.timeout(20):
            while consumer.asked < probes:  # noqa: ASYNC110 - the same
                await asyncio.sleep(0)
    finally:
        running.cancel()
        await asyncio.wait([running])
    return delivered


async def test_what_is_read_while_a_broker_answers_makes_no_topic_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each false alarm would read the whole topic again, and make the next one more likely."""
    consumer = Scripted(5, itertools.count(5, 3))  # each answer is from before the last three
    consumer.before_answer = 3
    delivered = await follow(consumer, monkeypatch, 20)
    assert consumer.seeks == []
    assert delivered == list(range(len(delivered)))


async def test_leader_that_is_behind_for_a_moment_makes_no_topic_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Scripted(5, [5, 5, 4, 5, 5])
    await follow(consumer, monkeypatch, 8)
    assert consumer.seeks == []


async def test_topic_that_was_made_anew_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Scripted(5, [5, 5, 2])
    delivered = await follow(consumer, monkeypatch, 6)
    assert consumer.seeks[0] == 0
    assert delivered[:7] == [0, 1, 2, 3, 4, 0, 1]
