"""What makes a gateway stand still while thousands of machines wait there."""

import asyncio
import gc
from collections.abc import Generator
from dataclasses import replace

import pytest

from tests.support.gateway import nowhere
from tests.support.raw_http import PATIENCE_S
from tests.support.waiting import until_true
from watchword.streams.gateway import GatewayOptions, Limits, run_gateway
from watchword.streams.kafka_clients import KafkaConnection

_MACHINES = 1000
_ROUNDS = 4
_POLL = b"GET /v1/joins/%064x?wait=1 HTTP/1.1\r\nHost: g\r\n\r\n"


@pytest.fixture
def collector() -> Generator[None]:
    """The collector as it was, afterwards: the gateway runs in this process."""
    thresholds = gc.get_threshold()
    gc.collect()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
async def test_long_polls_that_come_and_go_do_not_make_the_collector_look_at_everything() -> None:
    """It answers nobody meanwhile: half a second with 5,000 polls, every seven seconds, and longer on a busy machine."""
    port = int(nowhere().rpartition(":")[2])
    limits = replace(Limits(), waiters_per_address=_MACHINES, connections_per_address=_MACHINES)
    options = replace(
        GatewayOptions(KafkaConnection(nowhere()), port=port, health_port=0), limits=limits
    )
    gateway = asyncio.create_task(run_gateway(options))
    try:
        await until_true(lambda: _is_listening(port), "the gateway listens")
        machines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(_MACHINES)]
        before = gc.get_stats()[2]["collections"]
        for _ in range(_ROUNDS):
            await asyncio.gather(*(_poll(*machine, nth) for nth, machine in enumerate(machines)))
        looked = gc.get_stats()[2]["collections"] - before
        for _, writer in machines:
            writer.close()
    finally:
        gateway.cancel()
        await asyncio.gather(gateway, return_exceptions=True)

    assert looked == 0


async def _poll(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nth: int) -> None:
    writer.write(_POLL % nth)
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 202 ")


async def _is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
