"""The commands in the guide for security teams are commands that there are, with the options that they have."""

import re
import shlex
from pathlib import Path

import pytest

from watchword.streams.cli.main import make_app

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "siem.md"
_LINE = re.compile(r"^\$ (watchword .+)$", re.MULTILINE)


def commands() -> list[str]:
    return _LINE.findall(GUIDE.read_text("utf-8"))


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_guide_can_be_typed(line: str) -> None:
    """Whoever has an alert at three in the morning copies it."""
    line = re.sub(r'"\$\([^"]*\)"', "0" * 64, line)  # what a shell would put in
    words = shlex.split(re.split(r" [|>] ", line)[0], comments=True)[1:]
    make_app().parse_args(words, exit_on_error=False, print_error=False)


def test_the_guide_has_commands() -> None:
    assert len(commands()) >= 10
