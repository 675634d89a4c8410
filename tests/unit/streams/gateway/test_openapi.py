"""The description of the API says what the gateway does."""

import json
from typing import Any

import pytest
from starlette.routing import Route

from tests.support.folders import ROOT
from tests.support.gateway_desk import make_desk
from watchword.streams.gateway.openapi import openapi, openapi_bytes
from watchword.streams.gateway.problems import Problem
from watchword.streams.gateway.routes import application

STORED = ROOT / "docs" / "reference" / "openapi.json"
GUIDE = ROOT / "docs" / "reference" / "gateway.md"


def test_the_stored_copy_is_the_one_that_is_served() -> None:
    """Client authors read the copy; `make docs` writes it again."""
    assert STORED.read_bytes() == openapi_bytes()


def test_every_route_is_described_and_nothing_else() -> None:
    app = application(make_desk())
    served = {
        (route.path, method.lower())
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(path, method) for path, item in openapi()["paths"].items() for method in item}

    assert described == served


def test_every_problem_is_described_at_some_route() -> None:
    """A client author must not meet an error first in production."""
    text = json.dumps(openapi()["paths"])
    nowhere = [p for p in Problem if f"`{p.slug}`" not in text]

    assert nowhere == [Problem.METHOD_NOT_ALLOWED]


def test_the_guide_names_every_problem() -> None:
    text = GUIDE.read_text()

    assert [p.slug for p in Problem if f"`{p.slug}`" not in text] == []


def test_every_reference_leads_somewhere() -> None:
    document = openapi()

    def references(value: Any) -> list[str]:  # noqa: ANN401 - JSON
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return own + [r for inner in value.values() for r in references(inner)]
        if isinstance(value, list):
            return [r for inner in value for r in references(inner)]
        return []

    for reference in references(document):
        at: Any = document
        for step in reference.removeprefix("#/").split("/"):
            at = at[step]
        assert isinstance(at, dict)


@pytest.mark.parametrize("problem", list(Problem), ids=lambda p: p.slug)
def test_a_problem_is_told_in_constants(problem: Problem) -> None:
    """RFC 9457, and nothing of what was sent."""
    assert json.loads(problem.body) == {
        "type": f"urn:watchword:problem:{problem.slug}",
        "title": json.loads(problem.body)["title"],
        "status": problem.status,
        "detail": problem.detail,
    }
