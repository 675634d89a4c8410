"""The embedded Kafka."""

import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from tests.support.kafka import KafkaTopics
from tests.support.waiting import until
from watchword.streams.dev.errors import RuntimeChanged, ServerFailed
from watchword.streams.dev.kafka import EmbeddedKafka, KafkaOptions
from watchword.streams.dev.kafka_cluster import KafkaCluster
from watchword.streams.dev.kafka_runtime import class_path, default_cache, pinned_jars
from watchword.streams.dev.server_process import is_alive

pytestmark = pytest.mark.kafka

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncGenerator[EmbeddedKafka]:
    made = EmbeddedKafka(tmp_path / "data")
    try:
        await made.start()
        yield made
    finally:
        await made.remove()


async def _send(servers: str, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def _first_value(servers: str, topic: str, group: str) -> bytes | None:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        record = await consumer.getone()
    finally:
        await consumer.stop()
    return record.value


async def test_a_record_survives_a_restart_on_the_same_port_and_a_kill(
    broker: EmbeddedKafka,
) -> None:
    servers, pid = broker.bootstrap_servers, broker.pid
    topic = await KafkaTopics(servers).create("kept", partitions=2)
    await _send(servers, topic, b"kept")

    await broker.restart()
    assert broker.bootstrap_servers == servers
    assert broker.pid != pid
    assert await _first_value(servers, topic, "one") == b"kept"

    pid = broker.pid
    await broker.kill()
    assert not is_alive(pid)
    await broker.start()
    assert await _first_value(servers, topic, "two") == b"kept"


async def test_a_later_broker_on_the_folder_meets_the_data_on_other_ports(
    broker: EmbeddedKafka,
) -> None:
    topic = await KafkaTopics(broker.bootstrap_servers).create("kept")
    await _send(broker.bootstrap_servers, topic, b"kept")
    await broker.stop()

    async with EmbeddedKafka(broker.data_dir) as later:
        assert later.bootstrap_servers != broker.bootstrap_servers
        assert await _first_value(later.bootstrap_servers, topic, "one") == b"kept"


async def test_each_test_has_topics_of_its_own(kafka_topics: KafkaTopics) -> None:
    topic = await kafka_topics.create("join.requests", configs={"retention.ms": "60000"})
    assert topic.endswith(".join.requests")
    assert topic != KafkaTopics(kafka_topics.bootstrap_servers).name("join.requests")
    await _send(kafka_topics.bootstrap_servers, topic, b"own")
    assert await _first_value(kafka_topics.bootstrap_servers, topic, topic) == b"own"


async def test_a_topic_that_nobody_created_does_not_appear(kafka_broker: EmbeddedKafka) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap_servers)
    await admin.start()
    try:
        (asked,) = await admin.describe_topics(["nobody-created-this"])
        assert asked["error_code"] == UnknownTopicOrPartitionError.errno
        assert "nobody-created-this" not in await admin.list_topics()
    finally:
        await admin.close()


async def test_a_changed_byte_in_a_jar_stops_the_start_before_java(tmp_path: Path) -> None:
    jars = pinned_jars()
    class_path(default_cache(), jars)  # fetch them if nothing has
    shutil.copytree(default_cache() / "jars", tmp_path / "cache" / "jars")
    victim = tmp_path / "cache" / "jars" / jars[0].file_name
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    broker = EmbeddedKafka(tmp_path / "data", KafkaOptions(cache=tmp_path / "cache"))

    with pytest.raises(RuntimeChanged, match=jars[0].file_name):
        await broker.start()

    assert not broker.is_running
    assert not broker.log.exists()


async def test_a_broker_that_cannot_start_quotes_its_log(tmp_path: Path) -> None:
    options = KafkaOptions(extra_properties={"listeners": "NONSENSE"})
    broker = EmbeddedKafka(tmp_path / "data", options)
    with pytest.raises(ServerFailed, match="NONSENSE"):
        await broker.start()
    assert not broker.is_running


async def test_clients_sign_in_when_the_extra_properties_ask_for_it(tmp_path: Path) -> None:
    options = KafkaOptions(
        extra_properties={
            "listener.security.protocol.map": (
                "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": f'{_PLAIN} required user_agent="right";',
        }
    )
    broker = EmbeddedKafka(tmp_path / "data", options)
    try:
        await broker.start()
        assert (broker.data_dir / "server.properties").stat().st_mode & 0o077 == 0
        assert await _can_sign_in(broker, "right")
        assert not await _can_sign_in(broker, "wrong")
    finally:
        await broker.remove()


async def _can_sign_in(broker: EmbeddedKafka, password: str) -> bool:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="agent",
        sasl_plain_password=password,
    )
    try:
        await admin.start()
        await admin.list_topics()
    except KafkaError:
        return False
    finally:
        await admin.close()
    return True


async def test_a_cluster_of_three_goes_on_without_one(tmp_path: Path) -> None:
    async with KafkaCluster(tmp_path) as cluster:
        topic = await KafkaTopics(cluster.bootstrap_servers).create("kept", replicas=3)
        await cluster.nodes[0].kill()
        await _send(cluster.bootstrap_servers, topic, b"kept")
        await cluster.nodes[0].start()
        assert await _first_value(cluster.bootstrap_servers, topic, "one") == b"kept"


_STARTS_AND_WAITS = """
import asyncio, sys
from pathlib import Path
from watchword.streams.dev.kafka import EmbeddedKafka

async def main():
    broker = EmbeddedKafka(Path(sys.argv[1]))
    await broker.start()
    print(broker.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
async def test_the_broker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _STARTS_AND_WAITS, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()

    await until(lambda: not is_alive(pid), "the broker ended")
