"""The list of reasons: closed, stable, and of use to whoever has the alert."""

from collections import Counter
from pathlib import Path

import pytest

from watchword.handlers.reasons import (
    BUILT_IN,
    EVERY,
    Known,
    find_reason,
    known_reasons,
    reasons_reference,
)
from watchword.schemas.reasons import CODE, OTHER, REASON, RETIRED, Reason, is_well_formed

LEDGER = Path(__file__).parent / "reason-codes.txt"
"""Every code that was ever released, with what it means: lines are added, and never changed."""

KNOWN = list(known_reasons())


def test_no_code_and_no_name_stands_twice() -> None:
    """A rule in a SIEM is written on the code."""
    assert [c for c, n in Counter(k.reason.code for k in KNOWN).items() if n > 1] == []
    names = Counter((k.attestor, k.reason.name) for k in KNOWN)
    assert [name for name, n in names.items() if n > 1] == []


def test_a_code_never_changes_its_meaning() -> None:
    """What was `bad-secret` in last year's events must not be something else in this year's."""
    now = {k.reason.code: f"{k.attestor}:{k.reason.name}" for k in KNOWN}
    now |= {retired.code: f"{retired.attestor}:{retired.name}" for retired in RETIRED}
    released = dict(line.split() for line in LEDGER.read_text().splitlines())
    assert {code: now.get(code) for code in released} == released


def test_what_was_retired_is_taken_by_nobody() -> None:
    """Old events keep their meaning."""
    codes = {k.reason.code for k in KNOWN}
    names = {(k.attestor, k.reason.name) for k in KNOWN}
    assert not [r for r in RETIRED if r.code in codes or (r.attestor, r.name) in names]


@pytest.mark.parametrize("known", KNOWN, ids=lambda k: f"{k.attestor}:{k.reason.name}")
def test_every_reason_says_what_it_is_and_what_to_do(known: Known) -> None:
    """An alert without a next step is noise."""
    attestor, reason = known
    assert is_well_formed(reason)
    assert CODE.fullmatch(reason.code)
    assert reason.code.startswith("WJ")
    assert REASON.fullmatch(reason.name)
    assert reason.sentence.endswith(".")
    assert reason.what_to_do.endswith(".")
    assert not reason.attack or reason.severity != "low"
    assert attestor in BUILT_IN


def test_the_page_has_every_reason() -> None:
    """It is the list that people look a code up in."""
    page = reasons_reference()
    for known in KNOWN:
        assert f"| `{known.reason.code}` |" in page
        assert known.reason.what_to_do.replace("|", "\\|") in page


def test_an_attestor_has_the_standard_reasons_too() -> None:
    found = find_reason("tpm", OTHER)
    assert found is not None
    assert found in BUILT_IN[EVERY]
    assert find_reason("tpm", "no-such-reason") is None


@pytest.mark.parametrize(
    "reason",
    [
        Reason("Bad Name", "AC0001", "low", "x"),
        Reason("x" * 65, "AC0001", "low", "x"),
        Reason("ok", "ac1", "low", "x"),
        Reason("ok", "AC0001", "fatal", "x"),  # type: ignore[arg-type]
        Reason("ok", "AC0001", "low", "x" * 301),
        Reason("ok", "AC0001", "low", "two\nlines"),
        Reason("ok", "AC0001", "low", "na\u00efve \u202e"),
        Reason(7, "AC0001", "low", "x"),  # type: ignore[arg-type]
        Reason("ok", "AC0001", "low", "x", attack="yes"),  # type: ignore[arg-type]
        "no reason at all",
    ],
)
def test_a_malformed_declaration_is_seen(reason: object) -> None:
    """A stranger's texts go into events, labels and terminals."""
    assert not is_well_formed(reason)
