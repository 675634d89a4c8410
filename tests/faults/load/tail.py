"""Reads what comes out while it comes out, to know when: the judge reads it all again."""

import asyncio
import base64
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.faults.judge.documents import Unreadable, opened
from tests.faults.judge.ledger import Ledger
from tests.faults.judge.topics import NODE_EVENTS, REFUSED, RESPONSES, partitions_of
from watchword.streams.kafka_closing import close

_TOPICS = (RESPONSES, NODE_EVENTS, REFUSED)
_REST_S = 0.3
_LOOK_S = 5.0
"""Between two looks at whether there are more partitions."""


class Tail:
    """A consumer without a group, on every partition that there is."""

    def __init__(self, bootstrap_servers: str, ledger: Ledger) -> None:
        """Write the times of answers into the ledger."""
        self._servers = bootstrap_servers
        self._ledger = ledger
        self.on_deferral: Callable[[bytes, Mapping[str, Any]], None] = lambda _digest, _told: None
        """Takes the digest of a request that was deferred, and what the machine was told."""
        self.on_joined: Callable[[bytes, Mapping[str, Any]], None] = lambda _digest, _told: None
        """Takes the digest of a request that was admitted, or was given commands, and what the machine was given."""
        self._positions: dict[TopicPartition, int] = {}
        self.events: dict[str, float] = {}
        """When each event was first seen, on the wall clock, by its id."""
        self.joined: deque[tuple[bytes, str]] = deque()
        """Requests that were joined, as which node, for whoever takes them out."""
        self.troubles: Counter[str] = Counter()
        """Why consumers were given up."""

    async def run(self) -> None:
        """Read until cancelled, whatever Kafka does."""
        while True:
            consumer: Any = AIOKafkaConsumer(
                bootstrap_servers=self._servers,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            )
            try:
                await consumer.start()
                await self._read(consumer)
            except Exception as error:  # noqa: BLE001 - whatever it is, another consumer goes on
                self.troubles[type(error).__name__] += 1
                await asyncio.sleep(_REST_S)
            finally:
                # Not `stop` itself: it may raise a CancelledError that is nobody's, which ended this task unseen.
                await close(consumer, patience_s=_REST_S)

    async def _read(self, consumer: Any) -> None:  # noqa: ANN401 - aiokafka has few types
        known: set[TopicPartition] = set()
        while True:
            async with asyncio.timeout(_LOOK_S):
                counts = await partitions_of(self._servers, _TOPICS)
            there = {
                TopicPartition(topic, number)
                for topic, count in counts.items()
                for number in range(count)
            }
            if there != known:
                known = there
                consumer.assign(sorted(known))
                for partition in known:
                    consumer.seek(partition, self._positions.get(partition, 0))
            until = time.monotonic() + _LOOK_S
            while time.monotonic() < until:
                # In time, or the consumer is of no use any more.
                async with asyncio.timeout(_LOOK_S):
                    fetched = await consumer.getmany(timeout_ms=100)
                for partition, messages in fetched.items():
                    for message in messages:
                        self._take(message)
                    self._positions[partition] = messages[-1].offset + 1

    def _take(self, message: Any) -> None:  # noqa: ANN401 - aiokafka has few types
        if message.topic == RESPONSES:
            self._take_answer(message.value)
            return
        event_id = (dict(message.headers).get("ce_id") or b"").decode()
        self.events.setdefault(event_id, time.time())

    def _take_answer(self, value: bytes) -> None:
        try:
            body = value.split(b".")[1]
            payload = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
            digest = bytes.fromhex(payload["requestSha256"])
            asked = self._ledger.asked.get(digest)
            if asked is not None and asked.reply_private is not None and "sealed" in payload:
                payload = opened(payload["sealed"], digest, {digest: asked.reply_private})
        except (Unreadable, ValueError, IndexError, KeyError):
            return  # The judge says what is wrong with it.
        self._ledger.answer(digest, time.monotonic())
        match payload.get("outcome"):
            case "joined":
                self.joined.append((digest, payload["joined"]["nodeId"]))
                self.on_joined(digest, payload["joined"])
            case "commands":
                self.on_joined(digest, payload["commands"])
            case "deferred":
                self.on_deferral(digest, payload["deferred"])
            case _:
                pass
