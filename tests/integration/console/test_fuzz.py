"""The API against its own description, with what nobody made on purpose."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from unittest import SkipTest

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.arrivals import joins, waits
from tests.support.joins import Bench
from tests.support.operators import HOST, Desks
from watchword.streams.console.api.openapi import openapi

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(240)]

_EXAMPLES = 8
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
async def served(console: Desks) -> AsyncGenerator[str]:
    config = uvicorn.Config(
        console.app, port=0, log_level="error", lifespan="off", ws="none", log_config=None
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    running = asyncio.create_task(server.main_loop())
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        await server.shutdown()


async def test_whatever_is_sent_is_answered_as_described(
    bench: Bench, console: Desks, served: str
) -> None:
    """A program that meets a 500, or a field that is not described, stops in the middle of something."""
    await joins(bench)
    await waits(bench)
    headers = {"Authorization": f"Bearer {await console.token()}", "Host": HOST}

    problems = await asyncio.to_thread(fuzzed, served, headers)

    assert problems == []


def fuzzed(base_url: str, headers: dict[str, str]) -> list[str]:
    """Send some of everything to every operation; return what went wrong."""
    problems: list[str] = []
    for result in schemathesis.openapi.from_dict(openapi()).get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                _run(operation, mode, base_url, headers)
            except (Unsatisfiable, SkipTest):
                continue  # an operation that takes nothing cannot be given something wrong
            except Exception as error:  # noqa: BLE001 - all of them are told together
                problems.append(f"{operation.label} ({mode.value}): {error!r}"[:2000])
    return problems


def _run(
    operation: APIOperation[Any, Any, Any, Any],
    mode: GenerationMode,
    base_url: str,
    headers: dict[str, str],
) -> None:
    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def one(case: schemathesis.Case[Any]) -> None:
        response = case.call(base_url=base_url, headers=headers)
        case.validate_response(response, checks=_CHECKS)

    one()
