"""100,000 junk requests at a gateway process with a real Kafka, and valid ones among them."""

import asyncio
import os
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.folders import ROOT
from tests.support.gateway import JSON, location_of, make_csr, make_request, nowhere, worker_side
from tests.support.kafka import KafkaTopics

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

JUNK = int(os.environ.get("WATCHWORD_JUNK", "100000"))
CONNECTIONS = 40
BOUND_S = 5.0

_PROCESS = """
import asyncio, sys
from watchword.streams.gateway import GatewayOptions, Limits, run_gateway
from watchword.streams.kafka_clients import KafkaConnection
port, health, kafka, prefix = sys.argv[1:]
asyncio.run(run_gateway(GatewayOptions(
    KafkaConnection(kafka), port=int(port), health_port=int(health), topic_prefix=prefix,
    limits=Limits(arrivals_per_address=int(1e9), requests_per_address=int(1e9)))))
"""

GOOD = make_request()
CSR = make_csr()
KINDS = {
    "no JSON": b"junk",
    "canonical, unknown field": GOOD.replace(b'"kind"', b'"kinD"'),
    "a CSR of another key": make_request(CSR[:-1] + bytes([CSR[-1] ^ 1])),
    "64 KiB of zeros": bytes(64 * 1024),
}


def _http(body: bytes) -> bytes:
    head = f"POST /v1/joins HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _pour(port: int, message: bytes, count: int) -> None:
    """Send junk one after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400"), head
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
    writer.close()


async def _valid(client: httpx.AsyncClient, until: asyncio.Event) -> list[float]:
    """Send valid requests until the end, ten a second; return how long each took."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    while not until.is_set():
        request = make_request()
        started = loop.time()
        response = await client.post("/v1/joins", content=request, headers=JSON)
        took.append(loop.time() - started)
        assert (response.status_code, response.headers["location"]) == (202, location_of(request))
        await asyncio.sleep(0.1)
    return took


async def test_a_flood_of_junk_leaves_valid_requests_fast(kafka_topics: KafkaTopics) -> None:
    port, health = (int(nowhere().rpartition(":")[2]) for _ in range(2))
    async with worker_side(kafka_topics) as worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", _PROCESS, str(port), str(health)),
            *(kafka_topics.bootstrap_servers, kafka_topics.prefix),
            cwd=ROOT,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            took = await _flood(port, health, process.pid)
            peak_mib = _peak_mib(process.pid)
        finally:
            process.terminate()
            await process.wait()
        in_kafka = len(await worker.requests())
    print(f"  greatest memory {peak_mib:.0f} MiB; load average {os.getloadavg()[0]:.1f}")  # noqa: T201
    assert in_kafka == len(took)
    assert max(took) < BOUND_S


def _cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    """Return the greatest memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


async def _flood(port: int, health: int, pid: int) -> list[float]:
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=30.0) as client:
        async with asyncio.timeout(60):
            while True:
                try:
                    ready = await client.get(f"http://127.0.0.1:{health}/readyz")
                except httpx.TransportError:
                    ready = None
                if ready is not None and ready.is_success:
                    break
                await asyncio.sleep(0.1)
        loop = asyncio.get_running_loop()
        took: list[float] = []
        print()  # noqa: T201
        for kind, body in KINDS.items():
            is_over = asyncio.Event()
            valid = asyncio.create_task(_valid(client, is_over))
            each = JUNK // len(KINDS) // CONNECTIONS
            started, cpu_s = loop.time(), _cpu_s(pid)
            async with asyncio.TaskGroup() as pouring:
                for _ in range(CONNECTIONS):
                    pouring.create_task(_pour(port, _http(body), each))
            seconds, cpu_s = loop.time() - started, _cpu_s(pid) - cpu_s
            is_over.set()
            these = sorted(await valid)
            took += these
            print(  # noqa: T201 - a benchmark prints a table
                f"  {kind:26} {each * CONNECTIONS / seconds:6.0f} junk/s,"
                f" {cpu_s / each / CONNECTIONS * 1e6:5.0f} us of CPU each;"
                f" valid: median {these[len(these) // 2] * 1000:5.1f} ms,"
                f" worst {these[-1] * 1000:5.1f} ms of {len(these)}"
            )
        return took
