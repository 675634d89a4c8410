"""Links in the documentation lead somewhere, and every test that a page names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("deploy/**/*.md"),
        ROOT / "tests" / "README.md",
    )
    if page.exists()
)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_TEST = re.compile(
    r"`((?:unit|integration|acceptance|deploy|vectors|benchmarks)/[a-z_/0-9]+\.py)(?:::(test_[a-z0-9_]+))?"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """A page that points at nothing costs its reader an hour."""
    for target in _LINK.findall(page.read_text("utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", ["promises.md", "threat-model.md"])
def test_every_promise_names_a_test_that_exists(page: str) -> None:
    """A promise, or an answer to an attack, whose test was renamed away is only a sentence."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    named = _TEST.findall(text)
    assert len(named) > 15
    for file, test in named:
        path = ROOT / "tests" / file
        assert path.exists(), file
        assert not test or f"def {test}(" in path.read_text("utf-8"), f"{file}::{test}"


def test_every_attack_is_answered_by_a_test() -> None:
    """What stops an attacker is a wish until a test has seen it."""
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    table = text.partition("## What they try")[2].partition("## What is left")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 25
    assert [row for row in rows if not _TEST.search(row)] == []
