"""A gateway that has to go answers who waits and ends, and one that cannot begin says so."""

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace

import httpx
import pytest

from tests.support.folders import ROOT
from tests.support.gateway import nowhere, serving
from tests.support.raw_http import NOBODY_KNOWS, PATIENCE_S, gateway
from tests.support.waiting import until

_PROCESS = """
import asyncio, sys
from watchword.streams.gateway import GatewayOptions, run_gateway
from watchword.streams.kafka_clients import KafkaConnection
port, health, kafka = sys.argv[1:]
asyncio.run(run_gateway(GatewayOptions(
    KafkaConnection(kafka), port=int(port), health_port=int(health))))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_gateway_that_is_told_to_stop_sends_waiters_away_and_ends(
    number: signal.Signals,
) -> None:
    """A rolling upgrade: 202 with Retry-After, and the agent asks another replica."""
    port, health_port = (int(nowhere().rpartition(":")[2]) for _ in range(2))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _PROCESS, str(port), str(health_port), nowhere()),
        cwd=ROOT,
        env={"PATH": os.defpath},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=40.0) as client:
            url, health = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{health_port}"
            async with asyncio.timeout(30):
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        await client.get(f"{url}{NOBODY_KNOWS}")
                        break
                    await asyncio.sleep(0.05)
            polls = [
                asyncio.create_task(client.get(f"{url}{NOBODY_KNOWS}?wait=25")) for _ in range(5)
            ]
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    metrics = (await client.get(f"{health}/metrics")).text
                    if "watchword_gateway_waiters 5.0" in metrics:
                        break
                    await asyncio.sleep(0.02)
            loop = asyncio.get_running_loop()
            started = loop.time()
            process.send_signal(number)
            responses = await asyncio.gather(*polls)
            sent_away_s = loop.time() - started
            code = await asyncio.wait_for(process.wait(), 15)
            ended_s = loop.time() - started
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    assert [r.status_code for r in responses] == [202] * 5
    assert all("retry-after" in r.headers for r in responses)
    assert sent_away_s < 2.0
    assert (code, ended_s < 10.0) == (0, True)


async def test_a_gateway_that_is_cancelled_drains() -> None:
    """`watchword dev` runs it as a task."""
    async with gateway() as served:
        poll = asyncio.create_task(served.client.get(f"{NOBODY_KNOWS}?wait=25"))
        await until(lambda: bool(served.gateway._answers._waiting), "it waits")
        draining = asyncio.create_task(served.gateway._drain())
        response = await poll
        await draining

        assert response.status_code == 202
        assert "stopping" in served.gateway.health.problems()


async def test_an_address_that_is_taken_is_an_error_at_the_start() -> None:
    async with gateway() as served:
        taken = served.gateway.port
        with pytest.raises(OSError, match="in use"):
            async with serving(nowhere(), adjust=lambda options: replace(options, port=taken)):
                pass
