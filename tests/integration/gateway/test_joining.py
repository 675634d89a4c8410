"""A machine, gateways and a worker's half of a real Kafka."""

import asyncio
from contextlib import AbstractAsyncContextManager
from hashlib import sha256

import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.consumer import fetcher
from aiokafka.record import MemoryRecords

from tests.support.gateway import (
    JSON,
    Adjust,
    Served,
    WorkerSide,
    limited,
    location_of,
    make_csr,
    make_request,
    serving,
    timed,
)
from tests.support.waiting import until
from watchword.schemas.topics import (
    CRL_KEY,
    JOIN_RESPONSES,
    KEY_SET_KEY,
    TRUST_BUNDLE,
    TRUST_BUNDLE_KEY,
)
from watchword.streams.gateway import kafka_ports


def gateway(
    worker: WorkerSide, adjust: Adjust = lambda options: options
) -> AbstractAsyncContextManager[Served]:
    """Return a gateway on the worker's topics."""
    return serving(worker.topics.bootstrap_servers, worker.topics.prefix, adjust)


async def post(served: Served, request: bytes) -> httpx.Response:
    """Hand a request in."""
    return await served.client.post("/v1/joins", content=request, headers=JSON)


async def poll(served: Served, request: bytes, wait: int = 25) -> httpx.Response:
    """Ask for the answer."""
    return await served.client.get(f"{location_of(request)}?wait={wait}")


async def test_a_request_goes_to_kafka_unchanged_and_its_answer_comes_back(
    worker: WorkerSide,
) -> None:
    """The whole way, in both directions; a worker judges the very bytes that were sealed."""
    csr = make_csr()
    request = make_request(csr)
    async with gateway(worker) as served:
        await served.ready()
        taken = await post(served, request)
        polling = asyncio.create_task(poll(served, request))
        answer = await worker.answer(request)
        answered = await polling

    assert (taken.status_code, taken.headers["location"]) == (202, location_of(request))
    assert "retry-after" in taken.headers
    assert await worker.requests() == [(sha256(csr).digest(), request)]
    assert (answered.status_code, answered.content) == (200, answer)
    assert answered.headers["content-type"] == "application/jose"


async def test_a_request_as_large_as_it_may_be_goes_through(worker: WorkerSide) -> None:
    """The gateway's limit, the producer's and the topic's must be one."""
    request = make_request(sealed=b"s" * 392_000)
    async with gateway(worker) as served:
        await served.ready()
        taken = await post(served, request)

    assert 512 * 1024 - 2048 < len(request) <= 512 * 1024
    assert taken.status_code == 202
    assert [value for _, value in await worker.requests()] == [request]


async def test_any_replica_answers_whatever_replica_took_the_request(worker: WorkerSide) -> None:
    """A load balancer sends each request elsewhere."""
    request = make_request()
    async with gateway(worker) as one, gateway(worker) as other:
        await one.ready()
        await other.ready()
        await post(one, request)
        polls = [asyncio.create_task(poll(served, request)) for served in (one, other)]
        answer = await worker.answer(request)

        assert [(await p).content for p in polls] == [answer, answer]


async def test_a_gateway_that_was_restarted_gives_answers_from_before(worker: WorkerSide) -> None:
    """A rolling upgrade must not make every waiting machine ask again."""
    request = make_request()
    answer = await worker.answer(request)
    async with gateway(worker) as served:
        await served.ready()

        assert (await poll(served, request, wait=0)).content == answer


async def test_a_restart_does_not_read_what_is_too_old(worker: WorkerSide) -> None:
    """A start must not take as long as reading an hour of answers."""
    old, new = make_request(), make_request()
    await worker.answer(old, age_s=700.0, partition=0)
    await worker.answer(new, age_s=500.0, partition=0)
    async with gateway(worker) as served:
        await served.ready()

        assert (await poll(served, old, wait=0)).status_code == 202
        assert (await poll(served, new, wait=0)).status_code == 200


async def test_an_answer_that_was_evicted_comes_back_when_the_request_is_sent_again(
    worker: WorkerSide,
) -> None:
    """A lost answer is recoverable: the worker answers copies from its inbox."""
    request, other = make_request(), make_request()
    async with gateway(worker, limited(answers=1)) as served:
        await served.ready()
        await post(served, request)
        await worker.answer(request)
        assert (await poll(served, request)).status_code == 200
        await worker.answer(other)
        assert (await poll(served, other)).status_code == 200
        assert (await poll(served, request, wait=0)).status_code == 202

        await post(served, request)
        answer = await worker.answer(request, "joined again")

        assert (await poll(served, request)).content == answer
    assert [value for _, value in await worker.requests()] == [request, request]


async def test_copies_without_an_answer_go_to_kafka_once_in_a_while(worker: WorkerSide) -> None:
    """An impatient client multiplies nothing, and a lost request is recoverable."""
    request = make_request()
    async with gateway(worker, timed(resend_window_s=0.5)) as served:
        await served.ready()
        statuses = {(await post(served, request)).status_code for _ in range(5)}
        await poll(served, request, wait=1)
        statuses |= {(await post(served, request)).status_code for _ in range(5)}

    assert statuses == {202}
    assert [value for _, value in await worker.requests()] == [request, request]


async def test_a_forged_answer_on_the_topic_hides_no_genuine_one(worker: WorkerSide) -> None:
    """Whoever may write to the topic can answer for everybody."""
    request = make_request()
    forged = await worker.answer(request, "forged")
    async with gateway(worker) as served:
        await served.ready()
        first = await poll(served, request)
        genuine = await worker.answer(request, "genuine")
        after = first.headers["etag"].strip('"')
        second = await served.client.get(f"{location_of(request)}?wait=25&after={after}")

    assert (first.content, second.content) == (forged, genuine)


async def test_a_record_that_cannot_be_parsed_stops_nobody(
    worker: WorkerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header name that is not UTF-8 kills aiokafka's parser, for ever, in every replica."""
    # A worker's guard of the parser, if one was installed in this process, hides what is tested.
    monkeypatch.setattr(fetcher, "MemoryRecords", MemoryRecords)
    topic = worker.topics.name(JOIN_RESPONSES)
    requests = [make_request() for _ in range(4)]
    answers = [await worker.answer(requests[0], partition=0)]
    await worker.poison(topic, 0)
    answers.append(await worker.answer(requests[1], partition=0))
    async with gateway(worker) as served:
        await served.ready()
        answers.append(await worker.answer(requests[2], partition=1))
        await worker.poison(topic, 1)
        answers.append(await worker.answer(requests[3], partition=1))

        found = [(await poll(served, request, wait=10)).content for request in requests]

    assert found == answers


async def test_junk_on_the_topic_stops_nobody(worker: WorkerSide) -> None:
    topic = worker.topics.name(JOIN_RESPONSES)
    for value in (b"junk", b"", None):
        await worker.producer.send_and_wait(topic, value, key=b"k", partition=0)
    request = make_request()
    answer = await worker.answer(request, partition=0)
    async with gateway(worker) as served:
        assert (await poll(served, request)).content == answer


async def test_answers_in_a_partition_that_was_added_are_seen(
    worker: WorkerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics grow while everything runs."""
    monkeypatch.setattr(kafka_ports, "_METADATA_AGE_MS", 300)
    old, new = make_request(), make_request()
    async with gateway(worker) as served:
        await served.ready()
        await worker.answer(old)
        assert (await poll(served, old)).status_code == 200
        admin = AIOKafkaAdminClient(bootstrap_servers=worker.topics.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_partitions(
                {worker.topics.name(JOIN_RESPONSES): NewPartitions(total_count=4)}
            )
        finally:
            await admin.close()
        await worker.producer.client.fetch_all_metadata()
        await worker.producer.client.force_metadata_update()
        answer = await worker.answer(new, partition=3)

        assert (await poll(served, new)).content == answer
        assert (await poll(served, old, wait=0)).status_code == 200


async def test_published_documents_follow_the_topic(worker: WorkerSide) -> None:
    """Keys rotate while machines join."""
    await worker.publish(KEY_SET_KEY, b"keys 1")
    await worker.publish(TRUST_BUNDLE_KEY, b"bundle")
    await worker.publish(CRL_KEY, b"crl")
    async with gateway(worker) as served:
        await served.ready()
        paths = ("/v1/keys", "/v1/trust-bundle", "/v1/crl")
        found = [(await served.client.get(path)).content for path in paths]
        await worker.publish(KEY_SET_KEY, b"keys 2")
        await worker.publish(CRL_KEY, None)
        published = served.gateway._published
        await until(lambda: published.get(CRL_KEY) is None, "the CRL is withdrawn")

        assert found == [b"keys 1", b"bundle", b"crl"]
        assert (await served.client.get("/v1/keys")).content == b"keys 2"
        assert (await served.client.get("/v1/crl")).status_code == 404


async def test_a_poisoned_trust_topic_stops_no_new_keys(
    worker: WorkerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "MemoryRecords", MemoryRecords)
    await worker.poison(worker.topics.name(TRUST_BUNDLE), 0)
    await worker.publish(KEY_SET_KEY, b"keys")
    async with gateway(worker) as served:
        await served.ready()

        assert (await served.client.get("/v1/keys")).content == b"keys"


async def test_junk_in_a_flood_never_reaches_kafka_and_keeps_nobody_out(
    worker: WorkerSide,
) -> None:
    """From one and the same address: a noisy neighbour behind the same NAT."""
    requests = [make_request() for _ in range(10)]
    is_over = False

    async def junk(served: Served) -> int:
        count = 0
        while not is_over:
            junk = (b"junk", requests[0][:-1] + b" }", b"x" * 100_000)[count % 3]
            response = await served.client.post("/v1/joins", content=junk, headers=JSON)
            assert response.status_code in (400, 429)
            count += 1
        return count

    async with gateway(worker) as served:
        await served.ready()
        floods = [asyncio.create_task(junk(served)) for _ in range(20)]
        loop = asyncio.get_running_loop()
        slowest_s = 0.0
        for request in requests:
            started = loop.time()
            while (await post(served, request)).status_code != 202:
                assert loop.time() - started < 5.0
            slowest_s = max(slowest_s, loop.time() - started)
        is_over = True
        junk_count = sum(await asyncio.gather(*floods))

    assert sorted(str(value) for _, value in await worker.requests()) == sorted(map(str, requests))
    assert junk_count > 20
    assert slowest_s < 5.0
