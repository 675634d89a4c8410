"""The commands in guides that are read in a hurry are commands that there are, with the options that they have."""

import re
import shlex
from pathlib import Path

import pytest

from watchword.streams.cli.main import make_app

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
_LINE = re.compile(r"^\$ (watchword .+)$", re.MULTILINE)


def commands(guide: str) -> list[str]:
    return _LINE.findall((GUIDES / guide).read_text("utf-8"))


@pytest.mark.parametrize("line", [*commands("siem.md"), *commands("rotate-keys.md")])
def test_a_command_of_the_guide_can_be_typed(line: str) -> None:
    """Whoever has an alert at three in the morning copies it."""
    line = re.sub(r'"\$\([^"]*\)"', "0" * 64, line)  # what a shell would put in
    words = shlex.split(re.split(r" [|>] ", line)[0], comments=True)[1:]
    make_app().parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("guide", ["siem.md", "rotate-keys.md"])
def test_the_guide_has_commands(guide: str) -> None:
    assert len(commands(guide)) >= 10
