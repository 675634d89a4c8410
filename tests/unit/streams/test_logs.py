"""Logs: one line an event, nothing secret in it, whoever wrote it."""

import io
import json
import logging
from collections.abc import Generator
from typing import Any

import pytest
import structlog

from watchword.handlers.attestors.join_token.evidence import new_token
from watchword.streams import logs


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


def fail(message: str) -> None:
    raise ValueError(message)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_secret_fields_are_redacted_at_any_depth(stream: io.StringIO) -> None:
    """A field that somebody logs in an incident is in the log store for years."""
    structlog.get_logger("x").info("m", dsn="hunter2", options={"a": [{"Password": "hunter2"}]})
    logging.getLogger("y").warning("m", extra={"evidence": b"hunter2"})

    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count(logs.REDACTED) == 3


def test_secrets_inside_texts_are_redacted(stream: io.StringIO) -> None:
    """Exceptions of drivers quote addresses, and people paste tokens."""
    _, text, _ = new_token()
    secret = text.rpartition(".")[2]
    try:
        fail(f"postgres://u:hunter2@h/d and {text}")
    except ValueError:
        structlog.get_logger("x").exception("it broke")
    logging.getLogger("y").warning("cannot reach %s", "postgres://u:hunter2@h/d")

    assert "hunter2" not in stream.getvalue()
    assert secret not in stream.getvalue()
    assert "postgres://u:[redacted]@h/d" in lines(stream)[1]["event"]


def test_a_traceback_shows_no_variables(stream: io.StringIO) -> None:
    """A local variable may hold a key."""
    private = "hunter2"
    try:
        fail(str(len(private)))
    except ValueError:
        structlog.get_logger("x").exception("it broke")

    assert "Traceback" in lines(stream)[0]["exception"]
    assert private not in stream.getvalue()


def test_lines_of_one_request_carry_its_id(stream: io.StringIO) -> None:
    """So that one join can be followed through a busy log."""
    with logs.about_request("r-1"):
        structlog.get_logger("x").info("inside")
        logging.getLogger("y").warning("of a library")
    structlog.get_logger("x").info("outside")

    assert [line.get("request_id") for line in lines(stream)] == ["r-1", "r-1", None]
    assert {line["process"] for line in lines(stream)} == {"worker"}
