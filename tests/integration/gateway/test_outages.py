"""Kafka goes away, comes back, or was never there."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import pytest_asyncio

from tests.support.folders import server_folder
from tests.support.gateway import (
    JSON,
    location_of,
    make_request,
    nowhere,
    serving,
    timed,
    worker_side,
)
from tests.support.kafka import KafkaTopics
from tests.support.waiting import until
from watchword.streams.dev.kafka import EmbeddedKafka


@pytest_asyncio.fixture
async def broker() -> AsyncGenerator[EmbeddedKafka]:
    """A broker of this test's own."""
    with server_folder("kafka") as folder:
        broker = EmbeddedKafka(folder / "data")
        try:
            await broker.start()
            yield broker
        finally:
            await broker.remove()


async def test_a_gateway_without_kafka_says_so_and_takes_nothing() -> None:
    """503 with Retry-After, at once: a load balancer and an agent both know what to do."""
    async with serving(nowhere()) as served:
        health = served.gateway.health
        await until(lambda: "requests" in health.problems(), "it is known that Kafka is away")
        started = asyncio.get_running_loop().time()
        response = await served.client.post("/v1/joins", content=make_request(), headers=JSON)
        took_s = asyncio.get_running_loop().time() - started
        async with httpx.AsyncClient(trust_env=False) as client:
            base = f"http://127.0.0.1:{served.gateway.health_port}"
            ready, alive = await client.get(f"{base}/readyz"), await client.get(f"{base}/healthz")

    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert took_s < 1.0
    assert (ready.status_code, alive.status_code) == (503, 200)
    assert set(ready.json()["problems"]) == {"requests", "responses", "published"}
    assert "127.0.0.1" not in response.text


async def test_a_gateway_whose_topics_are_missing_is_not_ready(broker: EmbeddedKafka) -> None:
    """Topics are never created by themselves, so somebody has to be told; then all goes well."""
    topics = KafkaTopics(broker.bootstrap_servers)
    async with serving(broker.bootstrap_servers, topics.prefix, timed(send_s=1.0)) as served:
        health = served.gateway.health
        await until(
            lambda: "UnknownTopicOrPartitionError" in str(health.problems().get("responses")),
            "the missing topic is named",
            within_s=20,
        )
        async with worker_side(topics) as worker:
            await until(lambda: not health.problems(), "ready once there are topics", within_s=30)
            request = make_request()
            taken = await served.client.post("/v1/joins", content=request, headers=JSON)
            assert [value for _, value in await worker.requests()] == [request]

    assert taken.status_code == 202


async def test_an_outage_of_kafka_is_survived(broker: EmbeddedKafka) -> None:
    """Paused: a send misses its deadline. Restarted: everything goes on, and nothing was lost."""
    topics = KafkaTopics(broker.bootstrap_servers)
    first, second, third = (make_request() for _ in range(3))
    async with (
        worker_side(topics) as worker,
        serving(broker.bootstrap_servers, topics.prefix, timed(send_s=1.0)) as served,
    ):
        await served.ready()
        health = served.gateway.health

        async def post(request: bytes) -> int:
            return (
                await served.client.post("/v1/joins", content=request, headers=JSON)
            ).status_code

        assert await post(first) == 202

        broker.pause()
        assert await post(second) == 503
        await until(lambda: bool(health.problems()), "the outage is noticed", within_s=20)
        broker.resume()
        await until(lambda: not health.problems(), "ready again after a pause", within_s=30)
        assert await post(second) == 202

        await broker.stop()
        await until(lambda: bool(health.problems()), "the outage is noticed", within_s=20)
        assert await post(third) == 503
        polling = asyncio.create_task(
            served.client.get(f"{location_of(third)}?wait=25", timeout=60.0)
        )
        await broker.start()
        await until(lambda: not health.problems(), "ready again after a restart", within_s=30)
        assert await post(third) == 202
        answer = await worker.answer(third)
        assert (await polling).content == answer
        in_kafka = {value for _, value in await worker.requests()}

    assert in_kafka == {first, second, third}
