"""The worker as a process: signals, and how it ends."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.support.folders import ROOT
from tests.support.kafka import KafkaTopics
from tests.support.waiting import until
from tests.support.workers import Fleet
from watchword.streams.dev.free_ports import free_port
from watchword.streams.worker.exits import ExitCode

pytestmark = pytest.mark.kafka


@dataclass
class Running:
    """A worker process, and what it has written."""

    process: Process
    port: int
    lines: list[str] = field(default_factory=list[str])

    async def collect(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().strip())

    def judged(self) -> list[str]:
        return [line for line in self.lines if line.startswith("judged")]

    def readiness(self) -> tuple[int, dict[str, str]]:
        """Ask the health listener."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/readyz", timeout=5
            ) as answer:
                return answer.status, json.load(answer)["problems"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["problems"]
        except OSError:
            return 0, {}

    def metrics(self) -> str:
        """Scrape the health listener."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            content: bytes = answer.read()
        return content.decode()

    async def end(self, within_s: float = 20) -> int:
        return await asyncio.wait_for(self.process.wait(), within_s)


@contextlib.asynccontextmanager
async def running(
    fleet: Fleet, *, drain_s: float = 10, environment: Mapping[str, str] | None = None
) -> AsyncGenerator[Running]:
    port = free_port()
    arguments = (fleet.topics.bootstrap_servers, fleet.topics.prefix, "w0", str(port), str(drain_s))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.echo_worker", *arguments),
        cwd=ROOT,
        stdout=PIPE,
        env={**os.environ, **(environment or {})},
    )
    made = Running(process, port)
    collecting = asyncio.create_task(made.collect())
    try:
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await collecting


@pytest.fixture
async def fleet(kafka_topics: KafkaTopics) -> Fleet:
    made = Fleet(kafka_topics, partitions=2)
    await made.create()
    return made


async def test_sigterm_ends_what_is_in_flight_and_commits_it(fleet: Fleet) -> None:
    async with running(fleet) as worker:
        await fleet.send(b"slow")
        await until(lambda: bool(worker.judged()), "it is being judged", within_s=30)
        began = time.monotonic()
        worker.process.terminate()
        assert await worker.end() == 0
        assert time.monotonic() - began < 5
        assert "closed" in worker.lines
    assert await fleet.answers() == [b"slow"]
    assert (await fleet.committed())[0] == 1


async def test_sigterm_gives_a_batch_up_that_does_not_end_and_commits_nothing_of_it(
    fleet: Fleet,
) -> None:
    """PostgreSQL may be away: the orchestrator's patience ends before that."""
    await fleet.send(b"a")
    async with running(fleet, drain_s=5) as worker:
        await until(lambda: len(worker.judged()) == 1, "the first is judged", within_s=30)
        await fleet.send(b"hold")
        await until(lambda: len(worker.judged()) == 2, "the second is being judged")
        worker.process.terminate()
        assert await worker.end(10) == 0
    assert (await fleet.committed())[0] == 1
    assert await fleet.answers() == [b"a"]


async def test_a_process_whose_loop_is_blocked_ends_when_the_time_to_drain_is_over(
    fleet: Fleet,
) -> None:
    """Code of others runs in the worker; nothing of it may hold up a deployment."""
    async with running(fleet, drain_s=1) as worker:
        await fleet.send(b"block")
        await until(lambda: bool(worker.judged()), "the loop is blocked", within_s=30)
        worker.process.terminate()
        assert await worker.end(5) == ExitCode.DRAIN_OVERDUE
    assert (await fleet.committed())[0] is None


async def test_a_second_signal_ends_the_process_at_once(fleet: Fleet) -> None:
    async with running(fleet, drain_s=60) as worker:
        await fleet.send(b"hold")
        await until(lambda: bool(worker.judged()), "it is being judged", within_s=30)
        worker.process.send_signal(signal.SIGINT)
        await until(lambda: "stopping" in worker.readiness()[1], "it is stopping")
        worker.process.terminate()
        assert await worker.end(5) == 128 + signal.SIGTERM
    assert (await fleet.committed())[0] is None


async def test_a_signal_before_kafka_was_ever_reached_ends_the_process(fleet: Fleet) -> None:
    nowhere = Fleet(KafkaTopics("127.0.0.1:1"), 1)
    async with running(nowhere) as worker:
        await until(
            lambda: worker.readiness()[1].get("consumer", "").startswith("Kafka:"),
            "it says what is wrong",
            within_s=30,
        )
        worker.process.terminate()
        assert await worker.end(5) == 0
    del fleet


async def test_readiness_and_metrics_are_served(fleet: Fleet) -> None:
    async with running(fleet) as worker:
        await until(lambda: worker.readiness() == (200, {}), "it is ready", within_s=30)
        assert "watchword_worker_partitions 2.0" in worker.metrics()


@pytest.mark.parametrize(
    ("point", "answered_before"),
    [("after-commit-before-response", 0), ("after-response-before-offset", 1)],
)
async def test_a_worker_that_is_killed_around_the_response_answers_after_its_restart(
    fleet: Fleet, point: str, answered_before: int
) -> None:
    """Answered twice is allowed, and never is not."""
    await fleet.send(b"a")
    kill = {
        "WATCHWORD_FAILPOINTS_MODULE": "tests.support.kill_points",
        "WATCHWORD_TEST_KILL_AT": point,
    }
    async with running(fleet, environment=kill) as worker:
        assert await worker.end(30) == -signal.SIGKILL
    assert await fleet.answers() == [b"a"] * answered_before
    assert (await fleet.committed())[0] is None

    async with running(fleet) as worker:
        await until(lambda: bool(worker.judged()), "it is judged again", within_s=30)
        worker.process.terminate()
        assert await worker.end() == 0
    assert await fleet.answers() == [b"a"] * (answered_before + 1)
    assert (await fleet.committed())[0] == 1


def _has_judged(worker: Running, count: int) -> bool:
    return len(worker.judged()) > count


async def test_workers_that_are_killed_again_and_again_lose_nothing(fleet: Fleet) -> None:
    total = 0
    for _ in range(3):
        async with running(fleet) as worker:
            await fleet.send(*[b"%d" % (total + n) for n in range(40)])
            total += 40
            await until(partial(_has_judged, worker, 5), "it works", within_s=30)
            worker.process.kill()
            await worker.end()
    async with running(fleet) as worker:
        await until(
            lambda: bool(worker.judged()) and worker.judged()[-1] == f"judged 0 {total - 1}",
            "the last is judged",
            within_s=30,
        )
        worker.process.terminate()
        assert await worker.end() == 0
    assert {int(value) for value in await fleet.answers()} == set(range(total))
    assert (await fleet.committed())[0] == total
