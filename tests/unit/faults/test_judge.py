"""The judge of the fault suite: independent of what it judges, and not to be fooled."""

import ast
import base64
import secrets
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.faults.judge import leaks
from tests.faults.judge.answers import Reader, check_answers
from tests.faults.judge.canaries import Canaries, Canary
from tests.faults.judge.documents import Unreadable, canonical, read_answer
from tests.faults.judge.findings import Findings, Kind
from tests.faults.judge.ledger import (
    DEFERRED,
    INVALID,
    JOINED,
    REFUSED,
    Asked,
    Ledger,
    Poison,
)
from tests.faults.judge.letters import check_letters
from tests.faults.judge.refusals import most_in_window
from tests.faults.judge.tables import Tables
from tests.faults.judge.topics import DEAD_LETTERS, REQUESTS, RESPONSES, Record, Taken
from tests.support.folders import ROOT

KEY = Ed25519PrivateKey.generate()
SIGNING = KEY.public_key().public_bytes_raw()


def b64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def jws(payload: object, typ: str = "watchword-response") -> bytes:
    head = b64url(canonical({"alg": "Ed25519", "kid": "k", "typ": typ}))
    signed = head + b"." + b64url(canonical(payload))
    return signed + b"." + b64url(KEY.sign(signed))


class World:
    """One request and what became of it, as a deployment in order leaves it."""

    def __init__(self, outcome: str = JOINED, reason: str | None = None) -> None:
        """Ask, and have it answered and recorded."""
        self.value = secrets.token_bytes(20)
        self.outcome = outcome
        self.asked = Asked(
            digest=sha256(self.value).digest(),
            kind="test",
            outcomes=frozenset((outcome,)),
            reasons=frozenset((reason,) if reason else ()),
            csr_sha256=secrets.token_bytes(32),
            request_id="r-1",
            deliveries=1,
        )
        self.ledger = Ledger()
        self.ledger.add(self.asked)
        self.requests = [Taken.of(Record(REQUESTS, 0, 0, 0, b"k", self.value))]
        self.responses = [self.response(self.content())]
        self.inbox = [
            {
                "digest": self.asked.digest,
                "outcome": {JOINED: 1, REFUSED: 2, INVALID: 4}[outcome],
                "node_id": "n-1" if outcome == JOINED else None,
                "reason": reason,
            }
        ]

    def content(self, node: str = "n-1") -> dict[str, object]:
        match self.outcome:
            case "joined":
                return {"joined": {"nodeId": node, "chain": [base64.b64encode(b"leaf").decode()]}}
            case "refused":
                return {"refused": {"code": "ACCESS_DENIED", "message": "Join refused"}}
            case code:
                return {"failed": {"code": code}}

    def response(self, content: Mapping[str, object]) -> Record:
        csr = self.asked.csr_sha256 or b""
        payload = {
            "requestSha256": self.asked.digest.hex(),
            "requestId": "r-1",
            "csrSha256": csr.hex(),
            "issuedAt": "2026-01-01T00:00:00.000Z",
            "outcome": next(iter(content)),
            **content,
        }
        return Record(RESPONSES, 0, 0, 0, csr, jws(payload))

    def judged(self) -> Findings:
        findings = Findings()
        reader = Reader(self.ledger, SIGNING, findings)
        reader.read(self.responses)
        check_answers(self.ledger, self.requests, reader.answers, self.inbox, findings)
        return findings


def test_judge_imports_nothing_of_what_it_judges() -> None:
    """A mistake that both share would be seen by neither."""
    paths = sorted((ROOT / "tests" / "faults" / "judge").glob("*.py"))
    assert len(paths) > 10
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                assert not name.startswith("watchword"), f"{path.name} imports {name}"
                if name.startswith("tests."):
                    assert name.startswith("tests.faults.judge."), f"{path.name} imports {name}"


@pytest.mark.parametrize(
    ("outcome", "reason"), [(JOINED, None), (REFUSED, "a:b"), (INVALID, "join:undecodable")]
)
def test_judge_finds_nothing_where_nothing_is(outcome: str, reason: str | None) -> None:
    """A judge that cries at everything is not listened to."""
    assert World(outcome, reason).judged().lines() == []


def test_request_without_an_answer_is_lost() -> None:
    world = World()
    world.responses = []
    assert world.judged().counts[Kind.LOST]


def test_acknowledged_request_that_kafka_lost_is_lost() -> None:
    world = World()
    world.requests = []
    assert world.judged().counts[Kind.LOST]


def test_second_final_outcome_is_a_duplicate() -> None:
    world = World()
    world.responses.append(world.response(world.content("n-2")))
    assert world.judged().counts[Kind.DUPLICATED] == 1


def test_same_answer_again_is_no_duplicate() -> None:
    world = World()
    world.responses *= 2
    assert world.judged().is_clean


def test_answer_that_is_not_recorded_is_found() -> None:
    world = World()
    world.inbox = []
    assert world.judged().counts[Kind.LOST]


def test_answer_of_another_node_than_recorded_is_wrong() -> None:
    world = World()
    world.inbox[0]["node_id"] = "n-2"
    assert world.judged().counts[Kind.WRONG]


def test_other_reason_than_the_request_gave_is_wrong() -> None:
    world = World(REFUSED, "a:b")
    world.inbox[0]["reason"] = "a:c"
    assert world.judged().counts[Kind.WRONG]


def test_refusal_that_says_more_is_wrong() -> None:
    world = World(REFUSED, "a:b")
    content = {"refused": {"code": "ACCESS_DENIED", "message": "Join refused", "why": "a:b"}}
    world.responses = [world.response(content)]
    assert world.judged().counts[Kind.WRONG]


def challenged(state: str) -> dict[str, object]:
    return {"deferred": {"type": "challenge", "challenge": f"c-{state}", "state": state}}


def two_challenges(first: str, second: str) -> World:
    """Return a request, delivered twice, that was handed a challenge each time."""
    world = World()
    world.asked.outcomes = frozenset((DEFERRED,))
    world.asked.deferral = "challenge"
    world.inbox = []
    world.responses = [world.response(challenged(first)), world.response(challenged(second))]
    return world


def test_fresh_challenges_are_in_order() -> None:
    assert two_challenges("s-1", "s-2").judged().lines() == []


def test_state_that_is_handed_out_to_two_is_wrong() -> None:
    """A challenge that can be foreseen proves nothing."""
    world = two_challenges("s-1", "s-2")
    other = World()
    other.asked.outcomes, other.asked.deferral = frozenset((DEFERRED,)), "challenge"
    world.ledger.add(other.asked)
    world.requests += other.requests
    world.responses.append(other.response(challenged("s-1")))
    assert world.judged().counts[Kind.WRONG]


def test_challenge_that_leaves_a_row_is_wrong() -> None:
    world = two_challenges("s-1", "s-2")
    world.inbox = [
        {"digest": world.asked.digest, "outcome": 3, "node_id": None, "reason": None},
    ]
    assert world.judged().counts[Kind.WRONG]


def test_deferral_of_another_kind_is_wrong() -> None:
    world = two_challenges("s-1", "s-2")
    world.asked.deferral = "approval"
    assert world.judged().counts[Kind.WRONG] == 2


def test_altered_answer_does_not_verify() -> None:
    world = World()
    value = world.responses[0].value or b""
    with pytest.raises(Unreadable):
        read_answer(value[:-2] + bytes((value[-2] ^ 1, value[-1])), SIGNING, {})


def test_document_of_another_type_is_no_answer() -> None:
    with pytest.raises(Unreadable):
        read_answer(jws({"requestSha256": "00"}, "watchword-key-set"), SIGNING, {})


@pytest.mark.parametrize("before", [b"", b"x", b"xy"])
@pytest.mark.parametrize("after", [b"", b"z"])
def test_canary_is_found_in_every_spelling(before: bytes, after: bytes) -> None:
    """A secret that leaks in base64 inside something longer has leaked all the same."""
    secret = bytes(range(200, 232))
    canaries = Canaries([Canary("it", secret)])
    around = before + secret + after
    for text in (
        around,
        around.hex().encode(),
        around.hex().upper().encode(),
        base64.b64encode(around),
        base64.urlsafe_b64encode(around),
    ):
        assert list(canaries.found_in(b"log " + text + b" more")), text
    assert not list(canaries.found_in(bytes(range(200))))


async def test_canary_is_found_across_the_border_of_two_pieces_of_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table of gigabytes is looked through in pieces; what leaks does not keep to them."""
    monkeypatch.setattr(leaks, "_PIECE", 1000)
    secret = bytes(range(200, 232))

    class Pieces:
        def __init__(self, *pieces: bytes) -> None:
            self.pieces = pieces

        async def names(self) -> list[tuple[str, str]]:
            return [("watchword", "nodes")]

        async def copy(self, _: str, __: str, take: Callable[[bytes], Awaitable[None]]) -> None:
            for piece in self.pieces:
                await take(piece)

    for cut in range(33):
        findings = Findings()
        looking = leaks.Leaks(Canaries([Canary("it", secret)]), findings)
        pieces = Pieces(bytes(1000) + secret[:cut], secret[cut:] + bytes(1000), bytes(1000))
        await looking.in_tables(cast("Tables", pieces))
        assert findings.counts[Kind.WRONG], cut
        assert looking.looked >= 3032


def test_only_what_was_taken_and_not_answered_waits() -> None:
    """The soak asks how long the oldest waits while there are millions that do not."""
    ledger = Ledger()
    one, two, three = (Asked(bytes([n]), "join", frozenset((JOINED,))) for n in range(3))
    for asked in (one, two, three):
        ledger.add(asked)
    assert ledger.waiting(10.0) == (0, 0.0)
    ledger.answer(three.digest, 1.0)
    ledger.acknowledge(three.digest, 2.0)
    ledger.acknowledge(one.digest, 3.0)
    ledger.acknowledge(two.digest, 4.0)
    ledger.acknowledge(one.digest, 5.0)
    assert ledger.waiting(10.0) == (2, 7.0)
    ledger.answer(one.digest, 6.0)
    assert ledger.waiting(10.0) == (1, 6.0)
    ledger.answer(two.digest, 7.0)
    assert ledger.waiting(10.0) == (0, 0.0)


def test_greatest_number_in_a_window() -> None:
    assert most_in_window([], 10.0) == 0
    assert most_in_window([0.0, 5.0, 9.9, 10.0, 19.0], 10.0) == 3


def letter(value: bytes, partition: int, offset: int, key: bytes = b"k") -> Record:
    headers = {
        "watchword-reason": b"undecodable",
        "watchword-topic": REQUESTS.encode(),
        "watchword-partition": str(partition).encode(),
        "watchword-offset": str(offset).encode(),
    }
    return Record(DEAD_LETTERS, 0, 0, 0, key, value, tuple(headers.items()))


def test_dead_letters_are_compared_byte_by_byte() -> None:
    world = World(INVALID, "join:undecodable")
    world.asked.dead_letter = world.value
    world.ledger.poisons.append(Poison(0, 1, b"p", b"poison"))
    whole = [letter(world.value, 0, 0), letter(b"poison", 0, 1, b"p")]

    for letters, kind in (
        (whole, None),
        (whole[:1], Kind.LOST),
        (whole[1:], Kind.LOST),
        ([*whole, letter(world.value + b"!", 0, 0)], Kind.WRONG),
        ([*whole, letter(world.value, 7, 7)], Kind.WRONG),
    ):
        findings = Findings()
        check_letters(world.ledger, world.requests, letters, findings)
        assert findings.is_clean if kind is None else findings.counts[kind]
