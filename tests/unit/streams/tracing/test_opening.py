"""When a process traces, and that it costs nothing when it does not."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Generator

import pytest
import structlog

from watchword.handlers.errors import ConfigRefused
from watchword.streams import logs
from watchword.streams.settings import load
from watchword.streams.settings.tracing import TracingSettings, header_fields
from watchword.streams.tracing import sdk
from watchword.streams.tracing.opening import tracing_of

HOME = {"HOME": "/nonexistent"}

_OFF = """\
import sys
import watchword.streams.cli.agent
import watchword.streams.wiring.gateway
import watchword.streams.wiring.relay
import watchword.streams.wiring.worker
from watchword.streams.settings.tracing import TracingSettings
from watchword.streams.tracing.opening import tracing_of
with tracing_of(TracingSettings(), "worker") as spans:
    assert spans is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.fixture
def stream() -> Generator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    found = io.StringIO()
    logs.configure(process="worker", stream=found)
    yield found
    root.handlers[:], level = before
    root.setLevel(level)
    structlog.reset_defaults()


def url_of(**variables: str) -> str | None:
    return load(environment=HOME | variables).settings.tracing.url


def test_without_an_endpoint_nothing_is_traced_and_no_library_is_loaded() -> None:
    """It is off by default, and the extra need not be installed."""
    assert url_of() is None
    done = subprocess.run(
        [sys.executable, "-c", _OFF], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == "[]"


def test_endpoints_are_those_of_opentelemetry() -> None:
    """Operators have the variables already, and know which wins."""
    base = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}
    assert url_of(**base) == "http://collector:4318/v1/traces"
    assert (
        url_of(**base, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="https://t.example/in")
        == "https://t.example/in"
    )
    assert url_of(**base, OTEL_SDK_DISABLED="true") is None


@pytest.mark.parametrize(
    "endpoint", ["collector:4317", "ftp://x", "http://u:hunter2@x", "http://", "http://x?a=b"]
)
def test_an_endpoint_that_is_none_is_refused_and_not_quoted(endpoint: str) -> None:
    """The message is a log line, and the address may hold a password."""
    with pytest.raises(ConfigRefused) as caught:
        url_of(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)

    assert "tracing.endpoint" in str(caught.value.problems)
    assert "hunter2" not in str(caught.value.problems)


def test_a_collectors_credentials_are_a_secret() -> None:
    """They are shown nowhere, and what is malformed is not quoted."""
    from watchword.streams.settings.reader import shown  # noqa: PLC0415 - shown beside its use

    loaded = load(
        environment=HOME
        | {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20hunter2,x-a=%201%09"}
    )
    headers = loaded.settings.tracing.headers
    assert headers is not None
    fields = header_fields(headers.get_secret_value())
    assert fields == {"authorization": "Bearer hunter2", "x-a": "1"}
    assert "hunter2" not in repr(loaded) + repr(shown(loaded))

    for malformed in ("hunter2", "a b=hunter2", "a=hunter2%0d%0ax: y"):
        with pytest.raises(ConfigRefused) as caught:
            load(environment=HOME | {"OTEL_EXPORTER_OTLP_HEADERS": malformed})
        assert "hunter2" not in str(caught.value.problems)


def test_a_credential_that_cannot_be_sent_is_not_quoted(stream: io.StringIO) -> None:
    """The client says what is wrong with a header by quoting all of it."""
    made = sdk.provider(
        "http://127.0.0.1:9/v1/traces",
        headers={"authorization": "Bearer hunter2\r\nx"},
        sampled=1.0,
        resource={},
    )
    made._provider.get_tracer("test").start_span("work").end()
    made.shutdown()

    assert "InvalidHeader" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_without_the_extra_a_line_says_so_and_nothing_is_traced(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No join waits for a trace: a variable that somebody sets for a whole cluster must not stop it."""
    monkeypatch.delattr("watchword.streams.tracing.sdk", raising=False)
    monkeypatch.setitem(sys.modules, "watchword.streams.tracing.sdk", None)
    with tracing_of(TracingSettings(endpoint="http://127.0.0.1:9"), "worker") as spans:
        assert spans is None

    [line] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert line["level"] == "warning"
    assert "watchword[otel]" in line["event"]


def test_lines_have_the_ids_of_the_trace_they_are_written_in(stream: io.StringIO) -> None:
    """From a line to its trace and back; and a line outside of any has none."""
    ids = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}
    found = dict(ids)
    logs.correlate(lambda: found)
    try:
        with logs.about_request("0190163d-8694-739b-aea5-966c26f8ad91"):
            structlog.get_logger("x").info("inside")
        logging.getLogger("y").warning("of another library")
        found.clear()
        structlog.get_logger("x").info("outside")
    finally:
        logs.correlate(None)

    inside, other, outside = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert ids.items() <= inside.items()
    assert inside["request_id"] == "0190163d-8694-739b-aea5-966c26f8ad91"
    assert ids.items() <= other.items()
    assert "trace_id" not in outside
