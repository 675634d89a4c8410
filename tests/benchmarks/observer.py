"""An independent reader of a topic, in a process of its own: counts on arrival, verifies afterwards.

It knows nothing of the worker but Kafka. Verifying an answer takes as long as half a join, so it
waits until the load has ended; until then the observer only notes when each record arrived, which
takes a few percent of a core (the run prints how much).
"""

import asyncio
import base64
import json
import multiprocessing
import time
from collections.abc import Sequence
from ctypes import c_int64
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from multiprocessing.connection import Connection
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_POLL_MS = 50
_START_S = 30.0


@dataclass(frozen=True, slots=True)
class Watch:
    """What to read. `at_once` wakes for each record; otherwise they may gather for a moment."""

    servers: str
    topic: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """What answers are verified against: the response-signing key, and the node CA (DER)."""

    signing_public: bytes
    ca: bytes
    requests: Sequence[bytes]


@dataclass(slots=True)
class Findings:
    """What came of verifying; `arrived` is the monotonic time of the first answer to each request."""

    joined: int = 0
    refused: int = 0
    other: int = 0
    repeated: int = 0
    faults: list[str] = field(default_factory=list[str])
    arrived: dict[bytes, float] = field(default_factory=dict[bytes, float])


class Observer:
    """The reader's handle in the benchmark's own process."""

    def __init__(self, watch: Watch) -> None:
        """Start the process, and return when it reads from the topic's end."""
        context = multiprocessing.get_context("spawn")
        self._count = context.Value("q", 0, lock=False)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_main, args=(watch, self._count, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        self._ask_ready()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid or 0

    @property
    def count(self) -> int:
        """How many records have arrived so far."""
        return int(self._count.value)

    def verify(self, expected: Expected) -> Findings:
        """Stop reading, verify every answer, and return what was found."""
        self._pipe.send(expected)
        found = self._pipe.recv()
        if not isinstance(found, Findings):
            raise TypeError(found)
        self._process.join()
        return found

    def taken(self) -> list[tuple[float, bytes]]:
        """Stop reading, and return what arrived, each record with its monotonic time."""
        self._pipe.send(None)
        found: list[tuple[float, bytes]] = self._pipe.recv()
        self._process.join()
        return found

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._pipe.close()

    def _ask_ready(self) -> None:
        if not self._pipe.poll(_START_S) or self._pipe.recv() != "ready":
            self._process.terminate()
            message = "the observer did not start"
            raise TimeoutError(message)


def _main(watch: Watch, count: c_int64, pipe: Connection) -> None:
    arrivals = asyncio.run(_read(watch, count, pipe))
    expected: Expected | None = pipe.recv()
    pipe.send(arrivals if expected is None else verified(arrivals, expected))


async def _read(watch: Watch, count: c_int64, pipe: Connection) -> list[tuple[float, bytes]]:
    """Note what arrives until the pipe says that it is enough."""
    gathered: dict[str, Any] = (
        {} if watch.at_once else {"fetch_min_bytes": 64 * 1024, "fetch_max_wait_ms": 20}
    )
    consumer = AIOKafkaConsumer(bootstrap_servers=watch.servers, **gathered)
    await consumer.start()
    arrivals: list[tuple[float, bytes]] = []
    try:
        while not (found := consumer.partitions_for_topic(watch.topic)):
            await consumer._client.force_metadata_update()
            await asyncio.sleep(0.05)
        partitions = [TopicPartition(watch.topic, number) for number in found]
        consumer.assign(partitions)
        await consumer.seek_to_end(*partitions)
        await asyncio.gather(*(consumer.position(partition) for partition in partitions))
        pipe.send("ready")
        while not pipe.poll():
            fetched = await consumer.getmany(timeout_ms=_POLL_MS)
            now = time.monotonic()
            for records in fetched.values():
                arrivals += [(now, record.value or b"") for record in records]
                count.value += len(records)
    finally:
        await consumer.stop()
    return arrivals


# Verification: by `cryptography` and the standard library alone.


def verified(arrivals: Sequence[tuple[float, bytes]], expected: Expected) -> Findings:
    """Return what the answers are worth; each arrived at a monotonic time."""
    found = Findings()
    asked = {sha256(request).digest(): request for request in expected.requests}
    signing = Ed25519PublicKey.from_public_bytes(expected.signing_public)
    authority = x509.load_der_x509_certificate(expected.ca).public_key()
    if not isinstance(authority, ec.EllipticCurvePublicKey):
        raise TypeError(authority)
    nodes: dict[str, bytes] = {}
    for at, token in arrivals:
        try:
            digest, outcome = _checked(token, signing, authority, asked, nodes)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with an answer is a fault
            found.faults.append(f"{type(error).__name__}: {error}")
            continue
        if digest in found.arrived:
            found.repeated += 1
            continue
        found.arrived[digest] = at
        match outcome:
            case "joined":
                found.joined += 1
            case "refused":
                found.refused += 1
            case _:
                found.other += 1
    return found


def _checked(
    token: bytes,
    signing: Ed25519PublicKey,
    authority: ec.EllipticCurvePublicKey,
    asked: dict[bytes, bytes],
    nodes: dict[str, bytes],
) -> tuple[bytes, str]:
    """Return the digest of the request that an answer is for, and its outcome; raise if it is wrong."""
    signed, _, signature = token.rpartition(b".")
    signing.verify(_unb64url(signature), signed)
    answer = json.loads(_unb64url(signed.partition(b".")[2]))
    digest = bytes.fromhex(answer["requestSha256"])
    request = json.loads(asked[digest])
    csr = base64.b64decode(request["csr"])
    _must(answer["csrSha256"] == sha256(csr).hexdigest(), "another CSR")
    outcome: str = answer["outcome"]
    if outcome == "joined":
        joined = answer["joined"]
        leaf = x509.load_der_x509_certificate(base64.b64decode(joined["chain"][0]))
        algorithm = leaf.signature_hash_algorithm
        _must(algorithm is not None, "no hash")
        authority.verify(leaf.signature, leaf.tbs_certificate_bytes, ec.ECDSA(algorithm))  # type: ignore[arg-type]  # checked above
        _must(_spki(leaf) == _spki(x509.load_der_x509_csr(csr)), "another key")
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
        node = joined["nodeId"]
        _must(uri.endswith(f"/tenant/{joined['tenant']}/node/{node}"), "another name")
        _must(leaf.not_valid_before_utc < datetime.now(UTC) < leaf.not_valid_after_utc, "not valid")
        _must(nodes.setdefault(node, digest) == digest, "a node twice")
    elif outcome == "refused":
        said = {"code": "ACCESS_DENIED", "message": "Join refused"}
        _must(answer["refused"] == said, "another refusal")
    return digest, outcome


def _must(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        raise ValueError(otherwise)


def _spki(holder: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    return holder.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _unb64url(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
