"""The health listener, over real connections."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
from prometheus_client import CollectorRegistry, Counter

from watchword.streams.health import Health, HealthListener


@pytest.fixture
async def listener() -> AsyncGenerator[tuple[Health, HealthListener]]:
    registry = CollectorRegistry()
    Counter("watchword_test", "A counter.", registry=registry).inc()
    health = Health()
    found = HealthListener(health, "127.0.0.1", 0, registry=registry)
    await found.start()
    yield health, found
    await found.stop()


async def get(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split(b" ")[1]) if head else 0), body


async def test_readiness_lists_what_fails(listener: tuple[Health, HealthListener]) -> None:
    """An operator reads it before the logs."""
    health, found = listener
    request = b"GET /readyz HTTP/1.1\r\n\r\n"
    assert (await get(found.port, request))[0] == 200

    health.add_check("kafka", lambda: "no broker answers")
    health.add_check("broken", lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    status, body = await get(found.port, request)

    assert status == 503
    assert json.loads(body)["problems"] == {
        "kafka": "no broker answers",
        "broken": "the check failed: ZeroDivisionError",
    }


async def test_a_stopping_process_is_alive_and_not_ready(
    listener: tuple[Health, HealthListener],
) -> None:
    """Otherwise it is killed in the middle of draining, or still gets work."""
    health, found = listener
    health.stopping = True

    assert (await get(found.port, b"GET /readyz HTTP/1.1\r\n\r\n"))[0] == 503
    assert (await get(found.port, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == 200


async def test_metrics_are_served(listener: tuple[Health, HealthListener]) -> None:
    """Prometheus asks with a query and with headers of its own."""
    _, found = listener
    status, body = await get(found.port, b"GET /metrics?x=1 HTTP/1.1\r\nAccept: text/plain\r\n\r\n")

    assert status == 200
    assert b"watchword_test_total 1.0" in body


async def test_readiness_is_a_metric_too(listener: tuple[Health, HealthListener]) -> None:
    """Prometheus does not look at `/readyz`, and an alert has to name what fails."""
    health, found = listener
    request = b"GET /metrics HTTP/1.1\r\n\r\n"
    assert b"\nwatchword_ready 1.0\n" in (await get(found.port, request))[1]

    health.add_check("kafka", lambda: "no broker answers")
    _, body = await get(found.port, request)

    assert b"\nwatchword_ready 0.0\n" in body
    assert b'\nwatchword_failing_check{check="kafka"} 1.0\n' in body
    assert b"\nwatchword_build_info{version=" in body


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /readyz HTTP/1.1\r\n\r\n", 405),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000, 0),
    ],
)
async def test_anything_else_is_turned_away(
    listener: tuple[Health, HealthListener], request_bytes: bytes, status: int
) -> None:
    """The port is scanned like any other, and nobody may fill the memory through it."""
    _, found = listener
    try:
        answered, _ = await get(found.port, request_bytes)
    except ConnectionError:
        answered = 0

    assert answered == status
    assert (await get(found.port, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == 200
