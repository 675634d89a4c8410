"""The published schemas are the code's."""

import json
from pathlib import Path

import jsonschema
import pytest

from watchword.schemas.documents import asyncapi, json_schema, references
from watchword.schemas.requests import JoinRequest
from watchword.schemas.topics import TOPICS

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(references()))
def test_reference_is_what_the_code_says(name: str) -> None:
    """Whoever writes a client reads these files; `make docs` writes them again."""
    assert (REFERENCE / name).read_text("utf-8") == references()[name]


def test_request_schema_is_closed() -> None:
    """An unknown field on the wire is refused, and the published schema says so."""
    schema = json_schema(JoinRequest)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert len(schema["required"]) == 10


def test_asyncapi_has_every_topic() -> None:
    """A topic that the document forgets is one that nobody outside knows of."""
    addresses = {channel["address"] for channel in asyncapi()["channels"].values()}
    assert addresses == {topic.name for topic in TOPICS}
    assert json.loads(references()["asyncapi.json"])["asyncapi"] == "3.0.0"
