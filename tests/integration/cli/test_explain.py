"""What an operator types who wants to know why, as processes of their own; here without a worker that answers."""

from pathlib import Path

import pytest

from tests.support.commands import Command

pytestmark = pytest.mark.postgres

DIGEST = "ab" * 32


def test_without_a_worker_it_says_so(watchword: Command) -> None:
    """Not for ever, and not as if the request were unknown."""
    done = watchword("explain", DIGEST, "--timeout", "1s", code=69)
    assert "no worker has taken it up" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a request"),
        ((DIGEST, "--since", "1h"), "name a request"),
        ((DIGEST, "--until", "1h"), "--until goes with --since"),
        (("--since", "1h", "--until", "2h"), "a time after `since`"),
        (("nobody's-file",), "no file that can be read"),
        ((DIGEST, "--policy", "nowhere.toml"), "nowhere.toml"),
        ((DIGEST, "--anchors", "."), "neither a folder cloud-iid nor a folder tpm"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(
    watchword: Command, arguments: tuple[str, ...], said: str
) -> None:
    """Exit 2, before anybody is asked."""
    assert said in watchword("explain", *arguments, code=2).stderr


def test_a_draft_needs_the_table_that_counts(watchword: Command, tmp_path: Path) -> None:
    """A whole configuration is taken for its [attestors]; a file without them is a mistake."""
    draft = tmp_path / "draft.toml"
    draft.write_text("[deployment]\ncluster = 'x'\n")
    done = watchword("explain", DIGEST, "--policy", str(draft), code=2)
    assert "no table [attestors]" in done.stderr


def test_a_purge_counts_first_and_asks_for_the_count(watchword: Command) -> None:
    """Nobody is at the terminal here, so nothing is done; and nobody is found, so there is nothing to do."""
    watchword("tenants", "create", "acme")
    assert "say whom" in watchword("purge", "--why", "x", code=2).stderr
    assert "--why" in watchword("purge", "--tenant", "acme", code=2).stderr
    assert "nothing to purge" in watchword("purge", "--tenant", "acme", "--dry-run", code=3).stderr
