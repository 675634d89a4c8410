"""How many requests wait in Kafka for the workers: the ends of the topic against what their group has committed.

A page is never held up by Kafka for longer than `patience_s`: the look goes on without it, and the next page has
what it found. However many look, Kafka is asked once in `rest_s`.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from watchword.handlers.errors import WatchwordError
from watchword.schemas.topics import JOIN_REQUESTS
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.kafka_closing import close

_log = structlog.get_logger(__name__)

NOT_CONFIGURED: Final = "this console's configuration names no Kafka (kafka.bootstrap_servers)"
_LONGEST_S: Final = 10.0
"""Of one look, whoever waits for it or not."""
_CLOSE_S: Final = 1.0
_STALE_S: Final = 120.0
"""What was found longer ago is not shown for now."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Records that wait, in how many partitions there are; or why that is not known."""

    records: int | None
    partitions: int = 0
    greatest: int = 0
    """Of one partition."""
    age_s: float = 0.0
    """How long ago that was."""
    problem: str | None = None
    is_configured: bool = True
    """Whether there is a Kafka to ask."""


class LagReader:
    """Asks Kafka, when somebody looks."""

    def __init__(
        self,
        kafka: KafkaConnection,
        group: str,
        topic: str = JOIN_REQUESTS,
        *,
        patience_s: float = 1.0,
        rest_s: float = 5.0,
    ) -> None:
        """Connect with the first look."""
        self._kafka = kafka
        self._group = group
        self._topic = topic
        self._patience_s = patience_s
        self._rest_s = rest_s
        self._looking: asyncio.Task[Lag] | None = None
        self._found: tuple[float, Lag] | None = None

    async def read(self) -> Lag:
        """Return the lag, at once or after `patience_s`. Never raises errors of Kafka's."""
        if (known := self._known(self._rest_s)) is not None:
            return known
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        await asyncio.wait((self._looking,), timeout=self._patience_s)
        if (known := self._known(_STALE_S)) is not None:
            return known
        return Lag(None, problem=f"Kafka has not answered within {self._patience_s:g} s")

    async def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,), timeout=2 * _CLOSE_S)

    def _known(self, at_most_s: float) -> Lag | None:
        """Return what was found, if that is not longer ago."""
        if self._found is None:
            return None
        at, lag = self._found
        age_s = time.monotonic() - at
        return replace(lag, age_s=age_s) if age_s < at_most_s else None

    async def _look(self) -> Lag:
        try:
            async with asyncio.timeout(_LONGEST_S):
                lag = await self._asked()
        except (KafkaError, OSError, TimeoutError, WatchwordError) as error:
            _log.warning("the lag cannot be read", kind=type(error).__name__, error=str(error))
            lag = Lag(None, problem=f"Kafka does not tell ({type(error).__name__})")
        self._found = (time.monotonic(), lag)
        self._looking = None
        return lag

    async def _asked(self) -> Lag:
        # 1. Which partitions there are; all topics are asked for, because asking for one by name may make it.
        # 2. What the group has committed, where it has.
        # 3. Where each partition begins and ends. What retention took away waits no more.

        # Step 1
        options = self._kafka.client_options()
        options["request_timeout_ms"] = int(_LONGEST_S * 1000)
        async with _started(AIOKafkaAdminClient(**options)) as admin:
            topics = await admin.describe_topics()
            found = [one for one in topics if one["topic"] == self._topic]
            if not found:
                return Lag(None, problem=f"Kafka shows no topic {self._topic}")
            places = [
                TopicPartition(self._topic, one["partition"]) for one in found[0]["partitions"]
            ]

            # Step 2
            committed: Mapping[Any, Any] = await admin.list_consumer_group_offsets(self._group)

        # Step 3
        async with _started(AIOKafkaConsumer(**options, enable_auto_commit=False)) as consumer:
            begins = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
        waiting: list[int] = []
        for place in places:
            said = committed.get(place)
            begin = begins[place] if said is None else max(begins[place], said.offset)
            waiting.append(max(0, ends[place] - begin))
        return Lag(sum(waiting), len(waiting), max(waiting, default=0))


@asynccontextmanager
async def _started(client: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - aiokafka has no types
    try:
        await client.start()
        yield client
    finally:
        if isinstance(client, AIOKafkaAdminClient):
            await client.close()
        else:
            await close(client, patience_s=_CLOSE_S)


async def not_configured() -> Lag:
    """Return that there is no Kafka to ask."""
    return Lag(None, problem=NOT_CONFIGURED, is_configured=False)
