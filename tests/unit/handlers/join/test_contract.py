"""What an attestor may return, field by field."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from watchword.handlers.attestor import Admission, Approval, Challenge, Staged, Subject
from watchword.handlers.join.contract import (
    MAX_CHALLENGE_BYTES,
    MAX_LIST,
    MAX_STATE_BYTES,
    MAX_TEXT,
    fault_in_effects,
    fault_of,
)
from watchword.schemas.ids import NodeId, TenantId, TokenId

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TOKEN = TokenId("0123456789abcdef")
FULL = Admission(
    tenant=TenantId("acme"),
    role="node",
    pool="web",
    site="ber1",
    node_id=NodeId(UUID(int=1)),
    token_id=TOKEN,
    bind=b"b" * 32,
    allowed_kinds=("disk.wipe",),
    node_key_uri="urn:bc:tpm-ak:" + "a" * 64,
    hardware_key="ek:1234",
    subjects=(Subject("ek", "1234"),),
)
CHALLENGE = Challenge(b"c", b"s", NOW)
APPROVAL = Approval(b"u" * 32, FULL, {"ek": "1234"})

HOSTILE: tuple[Any, ...] = (5, b"bytes", "\0", "\ud800", "a\nb", [], {}, object(), "x" * 100_000)
"""What no text of an admission may be."""


@pytest.mark.parametrize("good", [FULL, CHALLENGE, APPROVAL], ids=["admission", "challenge", "approval"])  # fmt: skip
def test_what_keeps_the_contract_has_no_fault(good: Any) -> None:  # noqa: ANN401 - three types
    assert fault_of(good) is None


def test_admission_without_what_is_optional_has_no_fault() -> None:
    assert fault_of(Admission(tenant=TenantId("acme"), role="node", pool="web")) is None
    assert fault_of(replace(FULL, allowed_kinds=(), subjects=())) is None


@pytest.mark.parametrize("name", ["tenant", "role", "pool", "site", "node_id", "token_id", "bind", "allowed_kinds", "node_key_uri", "hardware_key", "subjects"])  # fmt: skip
def test_every_field_is_looked_at(name: str) -> None:
    """One that nobody looks at is found by PostgreSQL, with sixty other joins in the same statement."""
    assert name in {field.name for field in fields(Admission)}
    for value in HOSTILE:
        hostile: dict[str, Any] = {name: value}
        assert fault_of(replace(FULL, **hostile)) == f"{name} is malformed", str(value)[:20]


@pytest.mark.parametrize("found", [None, True, "admitted", 1, {}, [FULL], Admission], ids=str)
def test_anything_else_is_no_verdict(found: object) -> None:
    assert fault_of(found) == "neither an admission nor a deferral"


@pytest.mark.parametrize(
    "change",
    [
        {"challenge": "text"},
        {"challenge": bytes(MAX_CHALLENGE_BYTES + 1)},
        {"state": None},
        {"state": b""},
        {"state": bytes(MAX_STATE_BYTES + 1)},
        {"not_after": None},
        {"not_after": NOW.replace(tzinfo=None)},
    ],
    ids=lambda change: str(change)[:40],
)
def test_challenge_that_could_not_be_answered_is_a_fault(change: dict[str, Any]) -> None:
    """It would be found when the answer is written, behind the commit, again and again."""
    assert fault_of(replace(CHALLENGE, **change)) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"subject": b"short"},
        {"grant": None},
        {"grant": replace(FULL, pool="a\0b")},
        {"facts": None},
        {"facts": {"ek": "a\0b"}},
        {"facts": {5: "1234"}},
    ],
    ids=lambda change: str(change)[:40],
)
def test_approval_that_could_not_be_shown_is_a_fault(change: dict[str, Any]) -> None:
    assert fault_of(replace(APPROVAL, **change)) is not None


def test_limits_are_reached_and_not_passed() -> None:
    assert fault_of(replace(FULL, hardware_key="k" * MAX_TEXT)) is None
    assert fault_of(replace(FULL, hardware_key="k" * (MAX_TEXT + 1))) is not None
    many = tuple(Subject("ek", str(number)) for number in range(MAX_LIST + 1))
    assert fault_of(replace(FULL, subjects=many[:-1])) is None
    assert fault_of(replace(FULL, subjects=many)) is not None


def test_faults_quote_no_value() -> None:
    """The text goes into the log; the value may be evidence."""
    assert "secret" not in str(fault_of(replace(FULL, pool="secret\0")))


@pytest.mark.parametrize("spend", [5, None, "", "a\0b", "short", "0123456789ABCDEF", b"0123456789abcdef"], ids=str)  # fmt: skip
def test_only_token_ids_are_spent(spend: Any) -> None:  # noqa: ANN401 - junk
    assert fault_in_effects(Staged(spends=[TOKEN])) is None
    assert fault_in_effects(Staged(spends=[TOKEN, spend])) is not None


def test_effects_are_bounded() -> None:
    assert fault_in_effects(Staged(spends=[TOKEN] * (MAX_LIST + 1))) is not None
    assert fault_in_effects(Staged(uses=[(b"u" * 32, None)] * (MAX_LIST + 1))) is not None
