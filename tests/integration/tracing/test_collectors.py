"""Spans on their way out: to a collector that takes them, to one that does not answer, and with credentials that cannot be sent."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.support.joins import Machine
from tests.support.otlp import collecting
from watchword.handlers.crypto import hpke
from watchword.streams.dev.free_ports import free_ports

PATIENCE_S = 100
"""A collector that hangs does so for six times as long."""

_PROCESS = """\
import logging, sys, threading
from opentelemetry.trace import SpanKind
from watchword.streams import logs
from watchword.streams.settings import load
from watchword.streams.tracing.opening import tracing_of

logs.configure(process="worker", level="DEBUG", libraries=logging.DEBUG)
with tracing_of(load().settings.tracing, "worker", "w-1") as spans:
    for _ in range(int(sys.argv[1])):
        spans.begin("work", SpanKind.INTERNAL).end()
    sys.stdin.readline()
print([thread.name for thread in threading.enumerate() if thread.name == "traces"])
"""


@contextmanager
def process(*command: str, **variables: str) -> Generator["subprocess.Popen[str]"]:
    """Run a process that sends spans soon after they have ended."""
    with subprocess.Popen(
        [sys.executable, *command],
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            **variables,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


@contextmanager
def silence() -> Generator[tuple[socket.socket, str]]:
    """Listen like a collector that hangs; give it, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        yield silent, f"http://127.0.0.1:{silent.getsockname()[1]}"


def test_a_collector_gets_spans_with_its_credentials_and_who_sent_them() -> None:
    """What the SDK reads of the environment holds beside our settings, and no line quotes the secret."""
    with (
        collecting() as collector,
        process(
            *("-c", _PROCESS, "1"),
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_HEADERS="Authorization=%20Bearer%20hunter2",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=here",
        ) as traced,
    ):
        collector.until(lambda found: bool(found.spans), "a span")
        told, said = traced.communicate("\n", timeout=PATIENCE_S)

    [span] = collector.spans
    assert (span.service, span.name) == ("watchword-worker", "work")
    assert collector.credentials == {"Bearer hunter2"}
    [resource] = collector.resources
    assert resource["service.instance.id"] == "w-1"
    assert resource["deployment.environment.name"] == "here"
    assert "traces are sent" in said
    assert "hunter2" not in told + said
    assert told.strip() == "[]"


def test_credentials_that_cannot_be_sent_are_in_no_line() -> None:
    """The library says what is wrong with a header by quoting it; this variable is its own, and we do not read it."""
    with (
        collecting() as collector,
        process(
            *("-c", _PROCESS, "1"),
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_TRACES_HEADERS="Authorization=Bearer%20hunter2%0d%0ax",
        ) as traced,
    ):
        _, said = traced.communicate("\n", timeout=PATIENCE_S)

    assert "Failed to export" in said
    assert "InvalidHeader" in said
    assert "hunter2" not in said
    assert collector.spans == []


def test_a_collector_that_does_not_answer_holds_nobody_up() -> None:
    """A worker has to be gone when its time to drain is over, and must not wait for a place in the queue of spans either."""
    with (
        silence() as (silent, address),
        process(
            *("-c", _PROCESS, "200"),
            OTEL_EXPORTER_OTLP_ENDPOINT=address,
            OTEL_EXPORTER_OTLP_TIMEOUT="600",
            OTEL_BSP_MAX_QUEUE_SIZE="16",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="8",
        ) as traced,
    ):
        connection, _ = silent.accept()
        with connection:
            told, _ = traced.communicate("\n", timeout=PATIENCE_S)

    # The thread that waits for it is left behind.
    assert told.strip() == "['traces']"
    assert traced.returncode == 0


def test_a_gateway_ends_while_its_collector_hangs() -> None:
    """Whoever rolls out a release must not wait for somebody else's collector."""
    port, health, nowhere = free_ports(3)
    with (
        silence() as (silent, address),
        process(
            *("-m", "watchword.streams.cli", "gateway"),
            KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{nowhere}",
            WATCHWORD_GATEWAY__PORT=str(port),
            WATCHWORD_GATEWAY__HEALTH_PORT=str(health),
            OTEL_EXPORTER_OTLP_ENDPOINT=address,
            OTEL_EXPORTER_OTLP_TIMEOUT="600",
        ) as gateway,
    ):
        assert _status_of(port, Machine(hpke.generate().public).request(b"x")) == 503
        connection, _ = silent.accept()
        with connection:
            gateway.send_signal(signal.SIGTERM)
            _, said = gateway.communicate(timeout=PATIENCE_S)

    assert gateway.returncode == 0, said


def _status_of(port: int, body: bytes) -> int:
    """Return what a gateway answers, as soon as it listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/joins", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 - the same
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                pytest.fail("the gateway does not listen")
            time.sleep(0.1)
