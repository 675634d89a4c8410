"""Promise 4: whoever is refused learns nothing from the answer, not even from its length."""

import base64
import json
from hashlib import sha256
from typing import Any

import pytest

from tests.support.attestors.scripted import REASONS, Script, Scripted
from tests.support.gateway import location_of
from tests.support.gateway_desk import asking, make_desk
from tests.support.joins import join_bench
from watchword.handlers.attestor import Admission, Deferral, Evidence, JoinContext
from watchword.handlers.errors import Refused
from watchword.handlers.join.records import Answer
from watchword.handlers.reasons import BUILT_IN, COMMAND_ID, CORE_ID, EVERY, RENEWAL_ID
from watchword.schemas.ids import AttestorId, TenantId
from watchword.schemas.reasons import (
    COMMANDS,
    JOIN_INVALID,
    JOIN_REFUSALS,
    JOIN_TOKEN,
    RENEWAL,
    STANDARD,
    STANDARD_BY_NAME,
    Reason,
)

pytestmark = pytest.mark.postgres

TENANTS = ("root", "acme", "a-tenant-with-quite-a-long-name")


def own(*reasons: Reason) -> tuple[Reason, ...]:
    """Return reasons of these names under codes of a stranger's, without those that every attestor has."""
    names = dict.fromkeys(reason.name for reason in reasons)
    return tuple(
        Reason(name, f"WY{number:04}", "low", "One of another's.")
        for number, name in enumerate(names)
        if name not in STANDARD_BY_NAME
    )


class Core(Scripted):
    """Refuses with whatever reason the payload names."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Refuse with what the payload names."""
        del context
        attestor, reason, tenant = evidence.payload.decode().split("|")
        raise Refused(AttestorId(attestor), reason, tenant_id=TenantId(tenant))


def parts(answer: Answer) -> tuple[bytes, dict[str, Any], int]:
    """Return header, payload and length of the signature of an answer."""
    header, payload, signature = answer.value.split(b".")
    said: dict[str, Any] = json.loads(
        base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
    )
    return header, said, len(signature)


def shape(answer: Answer) -> tuple[Any, ...]:
    """Return all of an answer that does not depend on who asked and when."""
    header, said, signature = parts(answer)
    own = ("requestSha256", "requestId", "csrSha256", "issuedAt")
    lengths = tuple(len(str(said[name])) for name in own)
    rest = {name: value for name, value in said.items() if name not in own}
    return (len(answer.value), header, signature, tuple(sorted(said)), lengths, json.dumps(rest), answer.outcome)  # fmt: skip


async def test_every_refusal_is_the_same_answer(database: str) -> None:
    """Every reason of core, standard, token and a stranger, of every tenant, at its first telling and again."""
    names = [reason.name for reason in (*JOIN_REFUSALS, *STANDARD, *JOIN_TOKEN, *REASONS)]
    attestor = Core()
    attestor.reasons = own(*REASONS, *JOIN_REFUSALS, *JOIN_TOKEN)
    async with join_bench(database, attestors=[attestor]) as bench:
        requests = [
            bench.machine().request(f"scripted|{name}|{tenant}".encode(), attestor="scripted")
            for name in names
            for tenant in TENANTS
        ]
        answers = await bench.engine.judge([bench.incoming(r) for r in requests])
        again = await bench.engine.judge([bench.incoming(r) for r in requests])

        assert {shape(answer) for answer in [*answers, *again]} == {shape(answers[0])}
        assert parts(answers[0])[1]["refused"] == {
            "code": "ACCESS_DENIED",
            "message": "Join refused",
        }
        rows = await bench.fetch("SELECT DISTINCT reason FROM refusals")
        assert {row["reason"] for row in rows} == set(names)


async def test_refusals_that_really_happen_are_the_same_answer(database: str) -> None:
    """By the seal, the role, the token, the verifier, the locks, the policy, a ban: all at once."""
    async with join_bench(
        database, attestors=[Scripted(), Scripted("lane", uses_tx=True)]
    ) as bench:
        token = await bench.token(uses=1)
        scripted: list[tuple[str, Script]] = [
            ("scripted", Script(way="refuse", detail="no")),
            ("scripted", Script(way="refuse", detail="undeclared")),
            ("lane", Script(way="refuse", detail="no")),
            ("scripted", Script(uses=(("u", None),))),
            ("scripted", Script(uses=(("u", None),))),
            ("scripted", Script(bind="b")),
            ("scripted", Script(bind="b")),
            ("scripted", Script(kinds=("no-such-kind",))),
            ("scripted", Script(hardware_key="h")),
            ("scripted", Script(hardware_key="h")),
        ]
        requests = [bench.machine().request(s.encode(), attestor=a) for a, s in scripted]
        requests += [
            bench.machine().request(token.payload),
            bench.machine().request(token.payload),
            bench.machine().request(token.payload[:-1] + b"\0"),
            bench.machine().request(b"junk"),
            bench.machine().request(token.payload, seal_role="site"),
            bench.machine().request(b"", attestor="scripted", role="ramdisk"),
        ]
        answers = await bench.engine.judge([bench.incoming(r) for r in requests])

        refused = [answer for answer in answers if answer.outcome == "refused"]
        assert {shape(answer) for answer in refused} == {shape(refused[0])}
        reasons = await bench.fetch("SELECT DISTINCT attestor || ':' || reason AS r FROM refusals")
        assert {row["r"] for row in reasons} == {
            "scripted:no", "scripted:other", "lane:no", "scripted:replayed", "scripted:bound-elsewhere",
            "join:not-allowed", "join:already-enrolled", "join-token:used-up", "join-token:bad-secret",
            "join-token:malformed", "join:unseal", "join:role-not-listed",
        }  # fmt: skip


async def test_sealed_refusals_have_one_length_too(database: str) -> None:
    """Whoever reads the topic must not tell a refusal from another one, or from what was not judged."""
    from watchword.handlers.crypto import hpke  # noqa: PLC0415

    async with join_bench(database, attestors=[Scripted()]) as bench:
        requests = [
            bench.machine().request(
                Script(way=way).encode(), attestor="scripted", reply_key=hpke.generate().public
            )
            for way in ("refuse", "refuse", "raise")
        ]
        answers = await bench.engine.judge([bench.incoming(r) for r in requests])
        assert len({len(answer.value) for answer in answers}) == 1
        assert {tuple(sorted(parts(a)[1])) for a in answers} == {
            ("issuedAt", "requestSha256", "sealed")
        }


class Named(Core):
    """Refuses under one of our attestors' ids, with whatever reason the payload names."""

    def __init__(self, attestor: str) -> None:
        """Declare what that attestor declares."""
        super().__init__(attestor)
        self.reasons = BUILT_IN.get(attestor) or own(
            *{r.name: r for r in (*JOIN_REFUSALS, *RENEWAL, *COMMANDS)}.values()
        )


async def test_every_listed_reason_is_the_same_response_over_http(database: str) -> None:
    """Whoever watches the wire sees one response: status, headers, fields and length, for the whole list of reasons."""
    attestors = {
        name: Named(name)
        for name in BUILT_IN
        if name not in (CORE_ID, EVERY, RENEWAL_ID, COMMAND_ID)
    }
    attestors["scripted"] = Named("scripted")
    listed = [
        (name if name in attestors else "scripted", reason.name)
        for name, reasons in BUILT_IN.items()
        for reason in reasons
        if reason not in JOIN_INVALID
    ]
    async with join_bench(database, attestors=list(attestors.values())) as bench:
        requests = [
            bench.machine().request(f"{attestor}|{reason}|root".encode(), attestor=attestor)
            for attestor, reason in listed
        ]
        answers: list[Answer] = []
        for at in range(0, len(requests), 64):
            answers += await bench.engine.judge([bench.incoming(r) for r in requests[at : at + 64]])
        rows = await bench.fetch("SELECT DISTINCT attestor, reason FROM refusals")
    assert {(row["attestor"], row["reason"]) for row in rows} == set(listed)
    assert {shape(answer) for answer in answers} == {shape(answers[0])}

    seen: set[tuple[object, ...]] = set()
    desk = make_desk()
    async with asking(desk) as client:
        for request, answer in zip(requests, answers, strict=True):
            desk.answers.add(sha256(request).digest(), answer.value)
            response = await client.get(location_of(request))
            headers = tuple(
                (name, b"" if name == b"etag" else value) for name, value in response.headers.raw
            )
            assert response.content == answer.value
            seen.add((response.status_code, headers, len(response.content)))
    assert len(listed) > 100
    assert len(seen) == 1
