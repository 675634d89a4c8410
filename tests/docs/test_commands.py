"""The commands in guides and runbooks are commands that there are, with the options that they have."""

import re
import shlex
from pathlib import Path

import pytest

from watchword.streams.cli.main import make_app

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = [
    DOCS / "guides" / f"{name}.md"
    for name in (
        "siem", "rotate-keys", "operate", "upgrade", "backup-and-restore", "join-token", "x509pop", "image", "pxe",
    )
]  # fmt: skip
RUNBOOKS = sorted((DOCS / "runbooks").glob("W*.md"))
_LINE = re.compile(r"^ *\$ (watchword .+)$", re.MULTILINE)


def commands() -> list[str]:
    lines = {
        line for page in (*GUIDES, *RUNBOOKS) for line in _LINE.findall(page.read_text("utf-8"))
    }
    return sorted(lines)


@pytest.mark.parametrize("line", commands())
def test_a_command_of_a_guide_or_runbook_can_be_typed(line: str) -> None:
    """Whoever has an alert at three in the morning copies it."""
    line = re.sub(r'"\$\([^"]*\)"', "0" * 64, line)  # what a shell would put in
    words = shlex.split(re.split(r" [|>] ", line)[0], comments=True)[1:]
    make_app().parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", [*GUIDES, *RUNBOOKS], ids=lambda page: page.stem)
def test_a_page_has_commands(page: Path) -> None:
    """A runbook without one leaves its reader to think of them."""
    assert _LINE.findall(page.read_text("utf-8"))
