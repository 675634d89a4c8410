"""A worker process with a join service that echoes: `python -m tests.support.echo_worker`.

Arguments: bootstrap servers, prefix of the topics, name, health port, seconds to drain. It writes
`judged partition offset` lines. A request `hold` is judged for ever, `slow` for half a second;
`block` blocks the event loop for ever, as broken code would.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence

from watchword.handlers.join.records import Answer, Incoming
from watchword.streams import failpoints
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.worker.options import Judging, WorkerLimits, WorkerOptions, WorkerTopics
from watchword.streams.worker.run import run_worker


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class _Echo:
    async def judge(self, batch: Sequence[Incoming]) -> list[Answer]:
        for incoming in batch:
            _say("judged", incoming.partition, incoming.offset)
        values = {incoming.value for incoming in batch}
        if b"hold" in values:
            await asyncio.Event().wait()
        if b"block" in values:
            time.sleep(3600)  # noqa: ASYNC251 - on purpose
        if b"slow" in values:
            await asyncio.sleep(0.5)
        return [Answer(key=b"k", value=i.value or b"", outcome="joined") for i in batch]

    async def quarantine(self, record: Incoming, reason: str) -> None:
        _say("quarantined", record.partition, record.offset, reason)

    def taken_over(self) -> None:
        """Nothing is remembered of others."""


@contextlib.asynccontextmanager
async def _echo() -> AsyncGenerator[Judging]:
    yield Judging(_Echo(), lambda: None, lambda: 0.0)
    _say("closed")


def main(servers: str, prefix: str, name: str, port: str, drain_s: str) -> int:
    """Run until a signal."""
    failpoints.load(os.environ)
    options = WorkerOptions(
        kafka=KafkaConnection(servers),
        name=name,
        group=f"{prefix}verifier",
        topics=WorkerTopics.prefixed(prefix),
        limits=WorkerLimits(drain_s=float(drain_s)),
        health_port=int(port),
    )
    return run_worker(options, _echo)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
