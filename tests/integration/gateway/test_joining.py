"""A machine, a gateway and a worker's half of a real Kafka."""

import asyncio
from collections.abc import AsyncGenerator
from hashlib import sha256

import pytest_asyncio

from tests.support.gateway import (
    JSON,
    WorkerSide,
    location_of,
    make_csr,
    make_request,
    serving,
    worker_side,
)
from tests.support.kafka import KafkaTopics
from watchword.schemas.topics import CRL_KEY, KEY_SET_KEY, TRUST_BUNDLE_KEY


@pytest_asyncio.fixture
async def worker(kafka_topics: KafkaTopics) -> AsyncGenerator[WorkerSide]:
    """The topics, and a worker's half of them."""
    async with worker_side(kafka_topics) as side:
        yield side


async def test_a_request_goes_to_kafka_unchanged_and_its_answer_comes_back(
    worker: WorkerSide,
) -> None:
    """The whole way, in both directions; a worker judges the very bytes that were sealed."""
    csr = make_csr()
    request = make_request(csr)
    async with serving(worker.topics.bootstrap_servers, worker.topics.prefix) as served:
        await served.ready()
        taken = await served.client.post("/v1/joins", content=request, headers=JSON)
        poll = asyncio.create_task(served.client.get(f"{location_of(request)}?wait=25"))
        answer = await worker.answer(request)
        answered = await poll

    assert (taken.status_code, taken.headers["location"]) == (202, location_of(request))
    assert "retry-after" in taken.headers
    assert await worker.requests() == [(sha256(csr).digest(), request)]
    assert (answered.status_code, answered.content) == (200, answer)
    assert answered.headers["content-type"] == "application/jose"
