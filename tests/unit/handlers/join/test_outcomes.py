"""What a settlement publishes: the bytes of a refusal, and their bounds."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from tests.support.attestors.scripted import Scripted
from tests.support.joins import Machine, keys
from watchword.handlers.catalog import Catalog
from watchword.handlers.errors import Refused
from watchword.handlers.join import outcomes as outcomes_module
from watchword.handlers.join.candidate import Candidate, NotJudged, Refusal
from watchword.handlers.join.outcomes import Outcomes
from watchword.handlers.join.records import Incoming
from watchword.handlers.join.refusal_events import claimed_address, refusal_event
from watchword.handlers.rows import RefusalRow
from watchword.schemas.cef import to_cef
from watchword.schemas.ecs import to_ecs
from watchword.schemas.events import JoinRefused
from watchword.schemas.ids import AttestorId, TenantId
from watchword.schemas.ocsf import to_ocsf
from watchword.schemas.reasons import CORE, MAX_TEXT, STANDARD_BY_NAME, Reason
from watchword.schemas.requests import ADDRESS_HEADER, Claims
from watchword.schemas.times import microseconds

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
EVENT = UUID("0190163d-8694-739b-aea5-966c26f8ad91")
OUTCOMES = Outcomes(Catalog([Scripted()]), worker="w0", source="/watchword/test")


def candidate(value: bytes = b"junk") -> Candidate:
    return Candidate(Incoming(value, "join.requests", 3, 77))


def published(one: Candidate, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a candidate's detail event, and its headers."""
    monkeypatch.setattr(outcomes_module, "new_event_id", lambda: EVENT)
    [counted] = OUTCOMES.refusals([one])
    entry = OUTCOMES.refusal_entry(counted, NOW)
    headers: dict[str, Any] = json.loads(entry.headers)
    return entry.value, headers


def test_refusal_has_the_bytes_it_was_released_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SIEM parses these; old records stay readable and new ones comparable."""
    one = candidate()
    refused = Refused(AttestorId("scripted"), "no", tenant_id=TenantId("acme"))
    one.judgement = Refusal(refused)
    one.claims = Claims(hardware_key="ek:secret")
    value, headers = published(one, monkeypatch)
    digest, hardware = sha256(b"junk").hexdigest(), sha256(b"ek:secret").hexdigest()
    assert (
        value
        == (
            '{"schemaVersion":1,"id":"0190163d-8694-739b-aea5-966c26f8ad91","type":"security.join.refused",'
            '"time":"2026-01-02T03:04:05.678Z","tenant":"acme","attestor":"scripted","reason":"no","refusal":"scripted:no",'
            f'"code":"WX0001","severity":"low","role":null,"csrSha256":null,"claimedHardwareKeySha256":"{hardware}",'
            f'"requestId":null,"requestSha256":"{digest}","topic":"join.requests","partition":3,"offset":77,"worker":"w0",'
            '"sentence":"The script says no.","attack":false,"triedSha256":null,"claimedAddress":null}'
        ).encode()
    )
    assert headers["ce_id"] == str(EVENT)
    assert headers["ce_tenantid"] == "acme"
    assert headers["ce_type"] == "security.join.refused"


def test_the_greatest_refusal_stays_under_4_kb_in_every_form() -> None:
    """Some pipelines cut or split what is greater, and a half event is none."""
    row = RefusalRow(
        type="refused",
        attestor="a" * 63,
        reason="r" * 64,
        tenant="t" * 63,
        role="ramdisk",
        request_sha256=bytes(32),
        request_id=str(EVENT),
        csr_sha256=bytes(32),
        hardware_key_sha256=bytes(32),
        topic="t" * 249,
        partition=2**31 - 1,
        offset=2**63 - 1,
        published=True,
        event_id=EVENT,
        tried_sha256=bytes(32),
        address="2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
    )
    reason = Reason("r" * 64, "ABCDEFGH9999", "medium", "s" * MAX_TEXT, attack=True)
    event = refusal_event(row, reason, worker="w" * 253, at=NOW).model_dump(by_alias=True)
    for form in (event, to_ocsf(event), to_ecs(event), to_cef(event)):
        assert len(json.dumps(form)) < 4096
    flat = (str, int, bool, type(None))
    assert all(isinstance(value, flat) for value in event.values())


@pytest.mark.parametrize(
    ("sent", "recorded"),
    [
        (b"192.0.2.7", "192.0.2.7"),
        (b"2001:DB8:0::/64", "2001:db8::"),
        (b"fe80::1%eth0", "fe80::1"),
        (b"192.0.2.7\n", None),
        (b"10.0.0.1 <script>", None),
        (b"x" * 10_240, None),
        (b"\xff\xfe", None),
        (b"", None),
        (None, None),
    ],
)
def test_an_address_is_one_or_is_left_out(sent: bytes | None, recorded: str | None) -> None:
    """Whoever may write to the topic can write any header."""
    assert claimed_address([("other", b"1"), (ADDRESS_HEADER, sent)]) == recorded


def test_refusal_without_a_tenant_is_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has authenticated as nobody writes into no tenant's stream."""
    one = candidate()
    one.judgement = Refusal(Refused(AttestorId("scripted"), "no"))
    value, headers = published(one, monkeypatch)
    assert json.loads(value)["tenant"] == headers["ce_tenantid"] == "root"


def test_what_was_not_understood_is_roots_and_of_a_type_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = candidate()
    one.judgement = one.problem
    value = json.loads(published(one, monkeypatch)[0])
    assert (value["type"], value["refusal"], value["tenant"]) == (
        "security.join.invalid",
        "join:undecodable",
        "root",
    )


@pytest.mark.parametrize("name", [*sorted(CORE), *sorted(STANDARD_BY_NAME)])
def test_every_reason_makes_a_small_event_that_reads_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some pipelines split what is above 4 KB; the greatest request and names must stay below."""
    machine = Machine(keys()[1])
    one = candidate(machine.request(b"p" * 1000, attestor="scripted"))
    one.claims = Claims(hardware_key="k" * 256, serial="s" * 128, hostname="h" * 253)
    attestor = AttestorId("join" if name in CORE else "scripted")
    one.judgement = Refusal(Refused(attestor, name, tenant_id=TenantId("t" * 63)))
    value, headers = published(one, monkeypatch)
    assert len(value) + len(json.dumps(headers)) < 4096
    event = JoinRefused.model_validate_json(value)
    assert event.refusal == f"{attestor}:{name}"
    assert event.csr_sha256 == sha256(machine.csr).hexdigest()
    # Nothing of what the machine said of itself.
    assert b"kkk" not in value
    assert b"sss" not in value


@pytest.mark.parametrize("reason", ["undeclared", "a\0b", "x" * 10_000])
def test_undeclared_reason_makes_no_series_of_its_own(reason: str) -> None:
    one = candidate()
    one.judgement = Refusal(Refused(AttestorId("scripted"), reason))
    [counted] = OUTCOMES.refusals([one])
    assert counted.bucket == ("root", "scripted", "other")


def test_only_refusals_and_what_was_not_understood_are_counted() -> None:
    refused, invalid, other = candidate(), candidate(b"more"), candidate(b"junk again")
    refused.judgement = Refusal(Refused(AttestorId("scripted"), "no"))
    invalid.judgement = NotJudged(4, "undecodable")
    found = OUTCOMES.refusals([other, invalid, refused])
    assert [counted.candidate for counted in found] == [invalid, refused]


def test_times_are_kept_to_the_microsecond() -> None:
    """A rebuild compares them with what PostgreSQL keeps; a float would round."""
    assert microseconds(NOW) == 1_767_323_045_678_901
    assert (
        microseconds(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) % 1_000_000 == 999_999
    )
