"""Commits offsets: ours alone, and only prefixes without a hole."""

import asyncio

import structlog
from aiokafka.errors import KafkaError

from watchword.streams.worker import metrics
from watchword.streams.worker.consumer import Consumer
from watchword.streams.worker.tenures import Tenures

_log = structlog.get_logger(__name__)


class Committer:
    """Tells Kafka what is done. One that fails is dropped: the next one says the same and more.

    After a rebalance it is right that it fails, and records that were done but not committed come
    again to whoever holds the partition then; the inbox answers them.
    """

    def __init__(self, tenures: Tenures) -> None:
        """Commit for these."""
        self._tenures = tenures
        self._one_at_a_time = asyncio.Lock()

    async def commit(self, consumer: Consumer, *, within_s: float) -> None:
        """Commit what is due; never raises."""
        async with self._one_at_a_time:
            due = self._tenures.due()
            if not due:
                return
            try:
                async with asyncio.timeout(within_s):
                    await consumer.commit({tenure.partition: offset for tenure, offset in due})
            except (KafkaError, TimeoutError) as error:
                metrics.COMMITS_DROPPED.inc()
                _log.warning("commit dropped", error=type(error).__name__, partitions=len(due))
                return
            for tenure, offset in due:
                tenure.committed = offset
            metrics.COMMITS.inc()
