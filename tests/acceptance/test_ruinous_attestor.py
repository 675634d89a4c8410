"""An attestor that ends its worker for one machine's evidence: the others are late, and none is lost."""

import asyncio
import json
import subprocess
import time
from base64 import b64decode
from hashlib import sha256
from pathlib import Path

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from tests.support.folders import server_folder
from tests.support.plug_ins import plugged_in
from tests.support.sites import READY_S, Site, configured
from watchword.handlers.crypto.jws import unverified_payload
from watchword.handlers.crypto.keysets import choose_encryption_key
from watchword.handlers.testkit.machine import Machine
from watchword.schemas.topics import JOIN_REQUESTS, JOIN_RESPONSES
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.trust import load_trust
from watchword.streams.dev.kafka import EmbeddedKafka
from watchword.streams.wiring.strangers import GROUP
from watchword.streams.worker.exits import ExitCode

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(420)]

_ATTESTORS = """\
[attestors]
enabled = ["ruinous"]
[attestors.ruinous]
kinds = []
"""

_MOST_RUNS = 8
_PATIENCE_S = 300.0


async def test_poisoned_requests_cost_two_workers_each_and_nobody_their_answer(
    database: str, kafka_broker: EmbeddedKafka
) -> None:
    """One machine must not be able to keep a fleet out, by accident or on purpose."""
    servers = kafka_broker.bootstrap_servers
    payloads = [b"good"] * 10 + [b"block"] + [b"good"] * 10 + [b"hog"] + [b"good"] * 10
    with server_folder("ruin") as folder:
        site = Site(folder, configured(folder, database, servers, _ATTESTORS))
        _limit(folder)
        path = plugged_in(folder, GROUP, {"ruinous": "tests.support.attestors.ruinous:Ruinous"})
        site.prepare()
        site.run("tenants", "create", "acme")
        site.run("pools", "create", "acme", "web")
        with site.process("signer"):
            site.await_ready("signer")
            with site.process("gateway"):
                site.await_ready("gateway_health")
                machine = site.bootstrapped("machine")
            clock = AgentClock()
            key = choose_encryption_key(load_trust(Keystore(machine), clock).key_set, clock.now())
            public = b64decode(key.public)
            asked = {
                Machine(public, key.kid).request(payload, attestor="ruinous"): payload
                for payload in payloads
            }
            await _produced(servers, list(asked))
            ends, answers = await _until_answered(site, servers, path, set(map(_digest, asked)))
            committed, end = await _offsets(servers)

    said = {payload: set[str]() for payload in payloads}
    for request, payload in asked.items():
        said[payload].add(answers[_digest(request)])
    assert said == {b"good": {"joined"}, b"block": {"UNAVAILABLE"}, b"hog": {"UNAVAILABLE"}}
    stalled, out = ExitCode.STALLED, ExitCode.OUT_OF_MEMORY
    assert ends == [stalled, stalled, out]
    assert committed == end
    connection = await asyncpg.connect(database)
    try:
        assert await connection.fetchval("SELECT count(*) FROM watchword.nodes") == 30
        assert await connection.fetchval("SELECT count(*) FROM watchword.inbox") == 30
    finally:
        await connection.close()


async def _produced(servers: str, requests: list[bytes]) -> None:
    """Write the requests to one partition, so that one batch has them all."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    await producer.start()
    try:
        for request in requests:
            await producer.send_and_wait(JOIN_REQUESTS, request, partition=0)
    finally:
        await producer.stop()


async def _until_answered(
    site: Site, servers: str, path: str, wanted: set[str]
) -> tuple[list[int], dict[str, str]]:
    """Run a worker, and again when it has ended, until all is answered; return how each run ended, and the answers."""
    reader = AIOKafkaConsumer(
        JOIN_RESPONSES, bootstrap_servers=servers, auto_offset_reset="earliest"
    )
    await reader.start()
    ends: list[int] = []
    answers: dict[str, str] = {}
    worker: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while wanted - answers.keys():
            if worker is None or worker.poll() is not None:
                if worker is not None:
                    ends.append(worker.returncode)
                assert len(ends) < _MOST_RUNS, _log(site)
                log = site.folder / f"worker-{len(ends)}.log"
                worker = site.spawned("worker", log, PYTHONPATH=path)
            for records in (await reader.getmany(timeout_ms=200)).values():
                for record in records:
                    _note(record.value, answers)
            assert time.monotonic() < deadline, _log(site)
        assert worker is not None
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, READY_S) == 0, _log(site)
    finally:
        if worker is not None:
            worker.kill()
            worker.wait()
        await reader.stop()
    return ends, answers


def _note(value: bytes | None, answers: dict[str, str]) -> None:
    said = json.loads(unverified_payload(value or b""))
    if "sealed" in said:
        return  # of another deployment on the same broker
    failed = said.get("failed")
    answers[said["requestSha256"]] = said["outcome"] if failed is None else failed["code"]


async def _offsets(servers: str) -> tuple[int | None, int]:
    """Return what the workers' group has committed, and the end of the log."""
    reader = AIOKafkaConsumer(
        bootstrap_servers=servers, group_id="watchword-verifier", enable_auto_commit=False
    )
    await reader.start()
    partition = TopicPartition(JOIN_REQUESTS, 0)
    try:
        return await reader.committed(partition), (await reader.end_offsets([partition]))[partition]
    finally:
        await reader.stop()


def _digest(request: bytes) -> str:
    return sha256(request).hexdigest()


def _limit(folder: Path) -> None:
    """Let workers lose patience soon."""
    config = folder / "config.toml"
    text = config.read_text().replace(
        "[worker]\n", "[worker]\nstall_s = 2.0\nmemory_bytes = 1073741824\n"
    )
    config.write_text(text)


def _log(site: Site) -> str:
    return "".join(log.read_text() for log in sorted(site.folder.glob("worker-*.log")))
