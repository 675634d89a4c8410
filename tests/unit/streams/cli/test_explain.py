"""An explanation is read by a person under pressure: what failed is found at a glance, and nothing moves the cursor."""

from typing import Any

import pytest

from watchword.handlers.errors import Unavailable
from watchword.streams.cli.explain import lines_of, show_changed

FOUND: dict[str, Any] = {
    "request": {
        "request_sha256": "ab" * 32,
        "request_id": "019a2f6c-1c5e-7d7a-a9c0-0d2b5e0f7a11",
        "kind": "join",
        "attestor": "join-token",
        "role": "node",
        "topic": "join.requests",
        "partition": 3,
        "offset": 18211,
    },
    "judged": {"at": "2026-11-30T04:12:09.310Z", "world": "as it was when the outcome was written"},
    "verdict": {"outcome": "refused", "reason": "join-token:used-up"},
    "recorded": {
        "outcome": "refused",
        "reason": "join-token:used-up",
        "at": "2026-11-30T04:12:09.310Z",
        "node_id": None,
    },
    "agrees": True,
    "draft": False,
    "steps": [
        {"number": "3", "attestor": None, "status": "passed", "what": "fresh", "facts": {}},
        {
            "number": "4.3",
            "attestor": "join-token",
            "status": "failed",
            "what": "the token has uses left",
            "facts": {"uses_left": 0, "tenant": "acme\x1b[2J"},
        },
        {"number": "5", "attestor": None, "status": "not-reached", "what": "x", "facts": {"a": 1}},
    ],
    "notes": [],
}


def test_what_failed_stands_out_and_says_what_to_do() -> None:
    """Number, mark, sentence, facts; then what the reason means."""
    lines = list(lines_of(FOUND))
    assert "verdict   refused join-token:used-up  (as recorded)" in lines
    assert "          join.requests:3:18211" in lines
    at = lines.index("  4.3   NO    join-token: the token has uses left")
    assert lines[at + 1].strip().startswith("uses left 0, tenant acme")
    assert lines[at + 2] == "5     -     x"  # of what was not reached nothing is shown
    assert lines[-2].startswith("means     ")
    assert lines[-1].startswith("to do     ")


def test_nothing_in_it_moves_the_cursor() -> None:
    """Facts come from evidence."""
    assert all(line.isprintable() for line in lines_of(FOUND))


def test_a_verdict_that_is_not_the_recorded_one_is_said_so() -> None:
    """Otherwise somebody reads the steps of another world."""
    found = FOUND | {"agrees": False, "notes": ["something has changed"], "recorded": None}
    lines = list(lines_of(found))
    assert any("NOT as recorded" in line for line in lines)
    assert "note      something has changed" in lines
    assert any(line.startswith("recorded  nothing") for line in lines)


CHANGED: dict[str, Any] = {
    "looked_at": 3,
    "has_more": False,
    "compared_with": "recorded",
    "changed": [{"attestor": "join-token", "recorded": "joined", "in_force": "refused x:y"}],
}


def test_a_script_is_told_by_the_exit_code_that_requests_would_end_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Than is recorded, which is for somebody to look at; that a draft changes something is what drafts are for."""
    assert show_changed(CHANGED, "table", is_draft=False) == 1
    assert "1 of 3 requests would end otherwise than is recorded" in capsys.readouterr().err
    assert show_changed(CHANGED | {"changed": []}, "table", is_draft=False) == 0
    assert show_changed(CHANGED | {"compared_with": "in-force"}, "table", is_draft=True) == 0


def test_a_worker_that_compares_with_nothing_is_not_believed() -> None:
    """One of the release before takes the question for one about a draft that is what is in force: nothing differs, ever."""
    old = {name: value for name, value in CHANGED.items() if name != "compared_with"}
    with pytest.raises(Unavailable, match="earlier release"):
        show_changed(old | {"changed": []}, "table", is_draft=False)
