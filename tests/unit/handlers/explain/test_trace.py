"""What attestors say while they are explained is bounded and harmless, whoever wrote them."""

from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256

from tests.support.contexts import Desk
from watchword.handlers.explain import trace
from watchword.handlers.explain.trace import Trace


def test_bytes_are_never_shown() -> None:
    """A token's secret is 32 bytes, and so is a digest: nobody can tell them apart, so neither is shown."""
    heard, secret = Trace(), b"s" * 32
    heard.step("acme-asset", 1, "the tag is known")
    heard.found("acme-asset", {"tag": secret, "short": b"\x00"})

    facts = heard.steps[0].facts
    assert facts["tag"] == f"sha256:{sha256(secret).hexdigest()}"
    assert secret.hex() not in repr(facts)
    assert "73737373" not in repr(facts)


def test_text_moves_no_cursor_and_ends() -> None:
    """Facts come from evidence, and evidence from anybody."""
    heard = Trace()
    heard.step("acme-asset", 1, "x\x1b[2J" * 1000)
    heard.found("acme-asset", {"name": "a\nb\u202e" + "c" * 9000})
    heard.found("acme-asset", {f"n{number}": number for number in range(1000)})
    for number in range(2, 1000):
        heard.step("acme-asset", number, "again")

    assert all(
        text.isprintable() for text in (heard.steps[0].what, str(heard.steps[0].facts["name"]))
    )
    assert len(str(heard.steps[0].facts["name"])) == 200
    assert len(heard.steps[0].facts) == 24
    assert len(heard.steps) == 64


def test_a_step_is_passed_when_the_next_begins_and_failed_by_a_refusal() -> None:
    """Nobody says of a step how it ended; what comes next does."""
    heard = Trace()
    heard.step("image", 1, "the image is known")
    heard.step("x509pop", 1, "asked by the image")
    heard.refused("x509pop")
    heard.refused("image")

    assert [(said.attestor, said.status) for said in heard.steps] == [
        ("image", "failed"),
        ("x509pop", "failed"),
    ]
    assert heard.refused_by == "x509pop"


def test_times_and_numbers_are_shown_as_they_are() -> None:
    """So that JSON has numbers and text, and nothing else."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert [trace.shown(value) for value in (None, True, 7, at, "x")] == [
        None,
        True,
        7,
        "2026-01-01T00:00:00.000Z",
        "x",
    ]


def test_what_costs_something_is_written_only_for_who_listens() -> None:
    """A fact that is a function costs a joining machine nothing, and an explanation says what it returns."""
    asked: list[str] = []

    def costly() -> str:
        asked.append("by whom")
        return "said"

    context, heard = Desk("acme-asset").context(), Trace()
    context.step(1, "nobody listens")
    context.found(tag=costly)
    assert not asked

    listening = replace(context, recorder=heard)
    listening.step(1, "somebody listens")
    listening.found(tag=costly, digest=b"\x01\x02".hex, plain="as it is")
    assert heard.steps[0].facts == {"tag": "said", "digest": "0102", "plain": "as it is"}
    assert asked == ["by whom"]
