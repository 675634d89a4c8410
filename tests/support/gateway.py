"""Requests that a gateway takes, gateways to send them to, and a worker's half of Kafka."""

import asyncio
import contextlib
import json
import secrets
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import httpx
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.producer import message_accumulator
from aiokafka.record.default_records import (
    _DefaultRecordBatchBuilderPy,  # pyright: ignore[reportPrivateUsage] # C's twin checks types
)
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from uuid_utils.compat import uuid7

from tests.support.kafka import KafkaTopics
from tests.support.waiting import until
from watchword.schemas.canonical import b64, b64url
from watchword.schemas.requests import JoinRequest
from watchword.schemas.topics import JOIN_REQUESTS, JOIN_RESPONSES, TRUST_BUNDLE
from watchword.streams.gateway import Gateway, GatewayOptions, Timings
from watchword.streams.kafka_clients import KafkaConnection

JSON = {"Content-Type": "application/json"}

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


def make_csr(key: Key | None = None) -> bytes:
    """Return the DER of a CSR that its own key has signed."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, secrets.token_hex(4))])
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else SHA256()
    csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, algorithm)
    return csr.public_bytes(Encoding.DER)


def make_request(csr: bytes | None = None, *, sealed: bytes = b"s" * 300) -> bytes:
    """Return the bytes of a request that a worker could judge."""
    return JoinRequest(
        version=1,
        kind="join",
        request_id=str(uuid7()),
        attestor="join-token",
        role="node",
        csr=b64(csr or make_csr()),
        encryption_key_id="key-1",
        sealed=b64(sealed),
        state=None,
        reply_key=None,
    ).write()


def make_answer(request: bytes, says: str = "joined") -> bytes:
    """Return what looks like a signed answer to a request."""
    payload = {"requestSha256": sha256(request).hexdigest(), "outcome": says}
    return b".".join(map(b64url, (b"{}", json.dumps(payload).encode(), b"signature")))


def location_of(request: bytes) -> str:
    """Return where the answer to a request will be."""
    return f"/v1/joins/{sha256(request).hexdigest()}"


def nowhere() -> str:
    """Return the address of a Kafka that is not there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


Adjust = Callable[[GatewayOptions], GatewayOptions]


@dataclass(frozen=True, slots=True)
class Served:
    """A running gateway and a client of it."""

    gateway: Gateway
    client: httpx.AsyncClient

    async def ready(self) -> None:
        """Return when the gateway is ready."""
        await until(lambda: not self.gateway.health.problems(), "the gateway is ready")


@contextlib.asynccontextmanager
async def serving(
    bootstrap_servers: str, prefix: str = "", adjust: Adjust = lambda options: options
) -> AsyncGenerator[Served]:
    """Run a gateway on free ports; `adjust` changes its options."""
    options = GatewayOptions(
        KafkaConnection(bootstrap_servers),
        port=0,
        health_port=0,
        topic_prefix=prefix,
        timings=Timings(drain_s=5.0),
    )
    gateway = Gateway(adjust(options))
    async with gateway.running():
        base = f"http://127.0.0.1:{gateway.port}"
        async with httpx.AsyncClient(base_url=base, timeout=30.0, trust_env=False) as client:
            yield Served(gateway, client)


def timed(**timings: Any) -> Adjust:  # noqa: ANN401 - seconds, some of them whole
    """Return an adjustment that sets these timings."""
    return lambda options: replace(options, timings=replace(options.timings, **timings))


def limited(**limits: int) -> Adjust:
    """Return an adjustment that sets these limits."""
    return lambda options: replace(options, limits=replace(options.limits, **limits))


class _NotText(str):
    """Writes itself as bytes that are no UTF-8, as clients in other languages can."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return them."""
        del encoding, errors
        return b"\xff\xfe"


class WorkerSide:
    """What a worker does on the topics: reads requests, writes answers."""

    def __init__(self, topics: KafkaTopics, producer: AIOKafkaProducer) -> None:
        """Take a started producer."""
        self.topics = topics
        self.producer = producer

    async def answer(
        self,
        request: bytes,
        says: str = "joined",
        *,
        partition: int | None = None,
        age_s: float = 0.0,
    ) -> bytes:
        """Write an answer whose record is `age_s` old, and return it."""
        answer = make_answer(request, says)
        await self.producer.send_and_wait(
            self.topics.name(JOIN_RESPONSES),
            answer,
            key=sha256(request).digest(),
            partition=partition,
            timestamp_ms=int((time.time() - age_s) * 1000),
        )
        return answer

    async def poison(self, topic: str, partition: int) -> None:
        """Write a record whose header has a name that is not UTF-8: no aiokafka can parse it."""
        builder = ("DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy)
        with (
            patch.object(message_accumulator, *builder),
            patch.object(sys.modules[AIOKafkaProducer.__module__], *builder),
        ):
            producer = AIOKafkaProducer(bootstrap_servers=self.topics.bootstrap_servers)
            await producer.start()
            try:
                await producer.send_and_wait(
                    topic,
                    b"poison",
                    key=b"poison",
                    partition=partition,
                    headers=[(_NotText("name"), b"")],
                )
            finally:
                await producer.stop()

    async def publish(self, key: bytes, value: bytes | None) -> None:
        """Write a document of the deployment."""
        await self.producer.send_and_wait(self.topics.name(TRUST_BUNDLE), value, key=key)

    async def requests(self) -> list[tuple[bytes | None, bytes | None]]:
        """Return key and value of every request that is in Kafka now."""
        topic = self.topics.name(JOIN_REQUESTS)
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.topics.bootstrap_servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            ends = await consumer.end_offsets(consumer.assignment())
            found: list[tuple[bytes | None, bytes | None]] = []
            while len(found) < sum(ends.values()):
                record = await asyncio.wait_for(consumer.getone(), 10)
                found.append((record.key, record.value))
            return found
        finally:
            await consumer.stop()


@contextlib.asynccontextmanager
async def worker_side(topics: KafkaTopics, *, partitions: int = 3) -> AsyncGenerator[WorkerSide]:
    """Create a gateway's three topics, and yield the worker's half."""
    await topics.create(JOIN_REQUESTS, partitions=partitions)
    await topics.create(JOIN_RESPONSES, partitions=partitions)
    await topics.create(TRUST_BUNDLE, configs={"cleanup.policy": "compact"})
    producer = AIOKafkaProducer(bootstrap_servers=topics.bootstrap_servers, acks="all")
    await producer.start()
    try:
        yield WorkerSide(topics, producer)
    finally:
        await producer.stop()
