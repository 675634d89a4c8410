"""How far the workers are behind, on the overview: what Kafka says, and a page that does not wait for it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.support.joins import Bench
from tests.support.kafka import KafkaTopics
from tests.support.operators import Desks, desks
from watchword.handlers.store.connection import Database
from watchword.streams.console.lag import Lag, LagReader, not_configured
from watchword.streams.console.office import Office
from watchword.streams.kafka_clients import KafkaConnection

pytestmark = [pytest.mark.postgres]


@asynccontextmanager
async def console_with(dsn: str, reader: LagReader) -> AsyncGenerator[Desks]:
    """Give a console that asks this reader."""
    unused: Database = None  # type: ignore[assignment]  # `desks` puts its own there
    try:
        async with desks(dsn, office=Office(unused, "test", lag=reader.read)) as console:
            yield console
    finally:
        await reader.stop()


@pytest.mark.kafka
async def test_what_waits_in_kafka_is_what_the_group_has_not_committed(
    bench: Bench, database: str, kafka_topics: KafkaTopics
) -> None:
    """Machines that wait where no worker has looked yet are in no table: only Kafka knows of them."""
    del bench
    topic = await kafka_topics.create("join.requests", partitions=3)
    servers, group = kafka_topics.bootstrap_servers, f"{topic}-verifier"
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for nth in range(9):
            await producer.send_and_wait(topic, b"x", partition=nth % 2)
    make = partial(LagReader, KafkaConnection(servers), group, topic, patience_s=30)

    async with console_with(database, make()) as console:
        nobody_has_read = await (await console.client()).get("/api/v1/overview")
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=group, enable_auto_commit=False
    ) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.commit({place: 3})
    async with console_with(database, make()) as console:
        client = await console.client()
        some = (await client.get("/api/v1/overview")).json()
        page = (await (await console.visitor()).get("/")).text
        tenants = await (await console.client("viewer", "acme")).get("/api/v1/overview")
        of_tenant = (await (await console.visitor("viewer", "acme")).get("/")).text

    assert nobody_has_read.json()["lagRecords"] == 9
    assert some["lagRecords"] == 6
    assert some["lagProblem"] is None
    assert "<b>6</b> requests behind in Kafka" in page
    assert "over 3 partitions, at most 4 in one" in page
    assert tenants.json()["lagRecords"] is None
    assert "behind in Kafka" not in of_tenant


@pytest.mark.kafka
async def test_a_topic_that_is_not_there_is_said_and_not_made(kafka_topics: KafkaTopics) -> None:
    """A console that is started first must not make the topic with the broker's defaults."""
    servers = kafka_topics.bootstrap_servers
    reader = LagReader(KafkaConnection(servers), "g", kafka_topics.name("absent"), patience_s=30)

    found = [await reader.read(), await reader.read()]

    assert {one.records for one in found} == {None}
    assert "shows no topic" in str(found[0].problem)
    await reader.stop()


async def test_without_kafka_the_page_says_so_and_works(bench: Bench, console: Desks) -> None:
    """A console needs PostgreSQL alone."""
    del bench
    page = await (await console.visitor()).get("/")
    said = (await (await console.client()).get("/api/v1/overview")).json()

    assert page.status_code == 200
    assert "names no Kafka" in page.text
    assert said["lagRecords"] is None
    assert said["lagProblem"] == (await not_configured()).problem


async def test_a_kafka_that_never_answers_holds_no_page_up(bench: Bench, database: str) -> None:
    """It is in an outage that people look at this page, all of them at once."""
    del bench
    came = 0
    closed = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        while await reader.read(1024):
            pass
        writer.close()
        closed.set()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader = LagReader(KafkaConnection(f"127.0.0.1:{port}"), "g", patience_s=0.2)
    async with server, console_with(database, reader) as console:
        visitor = await console.visitor()
        async with asyncio.timeout(60):
            pages = await asyncio.gather(*(visitor.get("/") for _ in range(10)))

        assert {page.status_code for page in pages} == {200}
        assert all("Kafka has not answered within 0.2 s" in page.text for page in pages)
        assert came == 1
    # Stopped with the console, not left to its own end.
    async with asyncio.timeout(60):
        await closed.wait()


async def test_what_was_found_is_kept_for_a_while_with_its_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many look, Kafka is asked once; and an old number is not told as a new one."""
    asked = 0
    goes_on = asyncio.Event()
    goes_on.set()

    async def told(_: LagReader) -> Lag:
        nonlocal asked
        asked += 1
        await goes_on.wait()
        return Lag(asked, 1, asked)

    monkeypatch.setattr(LagReader, "_asked", told)
    kept = LagReader(KafkaConnection("127.0.0.1:1"), "g", rest_s=3600)
    found = [await kept.read() for _ in range(5)]
    assert [one.records for one in found] == [1] * 5
    assert found[0].age_s <= found[-1].age_s

    eager = LagReader(KafkaConnection("127.0.0.1:1"), "g", rest_s=0, patience_s=0.01)
    assert (await eager.read()).records == 2
    goes_on.clear()
    assert (await eager.read()).records == 2, "the look goes on; what was found before is shown"
    assert asked == 3
    goes_on.set()
    await eager.stop()


async def test_a_kafka_that_is_not_there_is_said(bench: Bench) -> None:
    """The broker's host is down: refused at once, and no stack trace for an operator."""
    del bench
    reader = LagReader(KafkaConnection("127.0.0.1:1"), "g", patience_s=30)

    found = await reader.read()

    assert found.records is None
    assert "Kafka does not tell" in str(found.problem)
    await reader.stop()
