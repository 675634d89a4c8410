"""Logs: structlog, one line an event, constant messages with fields, and nothing secret in them.

Lines go to standard error; standard output belongs to the results of commands.
"""

import logging
import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["json", "console"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

REDACTED = "[redacted]"

SECRET_NAMES = frozenset(
    (
        "authorization",
        "claims",
        "database_url",
        "dsn",
        "evidence",
        "password",
        "payload",
        "private_key",
        "sasl_password",
        "sealed",
        "secret",
        "token",
        "token_secret",
    )
)
"""Fields whose values are never written, at whatever depth; ids and digests have other names."""

_PASSWORD_IN_URL = re.compile(r"(?<=://)([^\s/:@]*):[^\s/@]*@")
_TOKEN = re.compile(r"(w[wilos]1\.[a-z0-9]{16}\.)[A-Za-z0-9_-]+")
_LINE_BREAKS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")


Ids = Callable[[], Mapping[str, str]]
"""Returns `trace_id` and `span_id` of what is being done, as hex; nothing while nothing is traced."""

_ids: Ids | None = None


def correlate(ids: Ids | None) -> None:
    """Give every line the ids of the trace that it is written in, from now on; None ends it."""
    global _ids  # noqa: PLW0603 - logs are one for the whole process
    _ids = ids


def _name_trace(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    if _ids is not None:
        for name, value in _ids().items():
            event.setdefault(name, value)
    return event


def configure(
    *,
    log_format: LogFormat = "json",
    level: LogLevel = "INFO",
    process: str | None = None,
    libraries: int = logging.WARNING,
    stream: TextIO | None = None,
) -> None:
    """Send structlog's and the standard library's logs to one handler (standard error).

    `process` becomes a field of every line (`worker`, `relay` …). `libraries` is the least level that
    is shown of what is not ours: a command says itself what went wrong.
    """

    def name_process(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        if process is not None:
            event.setdefault("process", process)
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_process,
        _name_trace,
        # Text only: a traceback with local variables would show what they hold.
        structlog.processors.format_exc_info,
        redact,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=(stream or sys.stderr).isatty(),
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("aiokafka", "faust", "mode", "uvicorn", "httpx", "httpcore", "asyncio"):
        quiet = logging.getLogger(noisy)
        quiet.handlers.clear()
        quiet.propagate = True
        quiet.setLevel(max(libraries, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


@contextmanager
def about_request(request_id: str) -> Generator[None]:
    """Give every line inside the block the field `request_id`."""
    with structlog.contextvars.bound_contextvars(request_id=request_id):
        yield


def redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace the values of secret fields, and passwords in URLs wherever they stand."""
    return {name: _clean(name, value) for name, value in event.items()}


def _clean(name: str, value: object) -> Any:  # noqa: ANN401 - what a field holds
    if name.lower() in SECRET_NAMES:
        return value if value is None else REDACTED
    match value:
        case str():
            return plain(value)
        case bytes():
            return f"[{len(value)} bytes]"
        case Mapping():
            found = cast("Mapping[Any, object]", value)
            return {str(key): _clean(str(key), inner) for key, inner in found.items()}
        case list() | tuple():
            return [_clean(name, inner) for inner in cast("list[object]", value)]
        case _:
            return value


def plain(text: str) -> str:
    """Return the text without passwords in URLs, secrets of join tokens, and what moves a cursor."""
    without = _TOKEN.sub(r"\1" + REDACTED, _PASSWORD_IN_URL.sub(r"\1:" + REDACTED + "@", text))
    return _LINE_BREAKS.sub("\N{REPLACEMENT CHARACTER}", without)
