"""What agents are told to trust, on the compacted topic `trust.bundle`: written and read back."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError, UnknownTopicOrPartitionError

from watchword.handlers.crypto.documents import read_document
from watchword.handlers.crypto.endorsements import line_of, pin_of
from watchword.handlers.crypto.jws import unverified_payload
from watchword.handlers.crypto.keysets import read_key_set
from watchword.handlers.crypto.worker_keys import WorkerKeys
from watchword.handlers.errors import Conflict, SignatureBroken, Unavailable
from watchword.schemas.canonical import b64, unb64
from watchword.schemas.errors import SchemaError
from watchword.schemas.keyset import KeySet
from watchword.schemas.topics import (
    CRL_KEY,
    KEY_SET_KEY,
    TRUST_BUNDLE,
    TRUST_BUNDLE_KEY,
    crl_key,
    is_crl_key,
)
from watchword.streams.kafka_clients import KafkaConnection

_DEADLINE_S = 20.0
_PARTITION = TopicPartition(TRUST_BUNDLE, 0)
"""The topic has this one; agents and gateways read no other."""

_Client = Any
"""A consumer or producer of aiokafka, which has no types of its own."""


async def read_published(kafka: KafkaConnection) -> dict[bytes, bytes]:
    """Return the last document under each key; none is verified here.

    Raises:
        Unavailable: Kafka is away, or has no such topic.
    """
    consumer: _Client = AIOKafkaConsumer(
        **kafka.client_options(), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    found: dict[bytes, bytes | None] = {}
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await consumer.start()
            consumer.assign([_PARTITION])
            end = (await consumer.end_offsets([_PARTITION]))[_PARTITION]
            await consumer.seek_to_beginning(_PARTITION)
            while await consumer.position(_PARTITION) < end:
                fetched = await consumer.getmany(_PARTITION, timeout_ms=500)
                for record in fetched.get(_PARTITION, []):
                    if record.key is not None:
                        found[record.key] = record.value
    except UnknownTopicOrPartitionError as error:
        message = f"there is no topic {TRUST_BUNDLE}: run `watchword topics apply`"
        raise Unavailable(message) from error
    except (KafkaError, IllegalStateError, TimeoutError) as error:
        message = f"Kafka: {type(error).__name__} while reading {TRUST_BUNDLE}"
        raise Unavailable(message) from error
    finally:
        await consumer.stop()
    return {key: value for key, value in found.items() if value is not None}


async def publish_trust(kafka: KafkaConnection, keys: WorkerKeys, now: datetime) -> None:
    """Publish the signed key set and trust bundle of a key directory; doing it again is harmless.

    Raises:
        Conflict: what is published is newer, or by another signing key: this directory is not the
            deployment's.
        Unavailable: Kafka is away.
    """
    published = await read_published(kafka)
    if token := published.get(KEY_SET_KEY):
        try:
            there = read_ours(token, keys)
        except (SignatureBroken, SchemaError):
            message = (
                "another signing key published the key set: these are not the deployment's keys"
            )
            raise Conflict(message) from None
        if there.version > keys.version:
            message = (
                f"key set {there.version} is published, and these keys are version {keys.version}"
            )
            raise Conflict(message)
    # The bundle first: it says how the signing key of the key set was led to.
    await _publish(
        kafka, ((TRUST_BUNDLE_KEY, keys.trust_bundle(now)), (KEY_SET_KEY, keys.key_set(now)))
    )


def read_ours(token: bytes, keys: WorkerKeys) -> KeySet:
    """Return a published key set: of the signing key of `keys`, or of one that has led to it.

    Raises:
        SignatureBroken: of another key.
        SchemaError: no key set that this release knows.
    """
    claimed = unb64(read_document(KeySet, unverified_payload(token)).signing.public)
    if claimed != keys.signing.public:
        line = line_of(keys.handovers, pin_of(claimed), trust_domain=keys.trust_domain)
        if b64(keys.signing.public) not in {key.public for key in line}:
            raise SignatureBroken
    return read_key_set(token, claimed)


async def publish_crls(kafka: KafkaConnection, crls: Mapping[str, bytes], active: str) -> None:
    """Publish the CRL of each CA by its name, and that of the active one once more as *the* CRL.

    CRLs of CAs that are not there any more are withdrawn. Agents take one only if an authority of their
    trust bundle has signed it.

    Raises:
        Unavailable: Kafka is away.
    """
    named = {crl_key(name): der for name, der in crls.items()}
    before = [key for key in await read_published(kafka) if is_crl_key(key)]
    gone = [(key, None) for key in before if key not in named]
    await _publish(kafka, ((CRL_KEY, crls[active]), *named.items(), *gone))


async def _publish(kafka: KafkaConnection, documents: Sequence[tuple[bytes, bytes | None]]) -> None:
    producer: _Client = AIOKafkaProducer(
        **kafka.client_options(), acks="all", enable_idempotence=True
    )
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await producer.start()
            for key, value in documents:
                await producer.send_and_wait(TRUST_BUNDLE, value, key=key)
    except (KafkaError, TimeoutError) as error:
        message = f"Kafka: {type(error).__name__} while writing {TRUST_BUNDLE}"
        raise Unavailable(message) from error
    finally:
        await producer.stop()
