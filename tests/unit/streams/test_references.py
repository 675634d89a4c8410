"""The references of settings and commands are what the code says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from watchword.handlers.attestor_reference import attestor_reference
from watchword.handlers.reasons import reasons_reference
from watchword.streams.cli.reference import cli_reference
from watchword.streams.console.api.openapi import openapi_bytes as operators_openapi_bytes
from watchword.streams.settings.reference import configuration_reference

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("attestor.md", attestor_reference),
        ("cli.md", cli_reference),
        ("configuration.md", configuration_reference),
        ("operators-openapi.json", lambda: operators_openapi_bytes().decode()),
        ("reasons.md", reasons_reference),
    ],
)
def test_reference_is_what_the_code_says(name: str, made: Callable[[], str]) -> None:
    """Run `python tools/write_references.py`: operators read these pages and not the code."""
    assert (REFERENCE / name).read_text("utf-8") == made()
