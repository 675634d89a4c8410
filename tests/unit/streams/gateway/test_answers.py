"""Answers that are kept, and those who wait for one."""

import asyncio
from hashlib import sha256

import pytest

from watchword.streams.gateway.answers import Answer, Answers

D1, D2, D3 = (bytes([n]) * 32 for n in (1, 2, 3))


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def cache(
    *,
    requests: int = 100,
    total_bytes: int = 10**6,
    per_request: int = 4,
    clock: Clock | None = None,
) -> Answers:
    """Return an empty cache whose answers live for 60 seconds."""
    return Answers(
        requests=requests,
        total_bytes=total_bytes,
        per_request=per_request,
        ttl_s=60.0,
        clock=clock or Clock(),
    )


def walk(answers: Answers, digest: bytes, after: str | None = None) -> list[bytes]:
    """Return what a client gets that believes nothing."""
    found: list[Answer] = []
    while (answer := answers.find(digest, found[-1].tag if found else after)) is not None:
        found.append(answer)
    return [answer.value for answer in found]


def test_a_forged_answer_hides_no_genuine_one() -> None:
    """Whoever may write to the topic can answer for everybody; only agents can tell."""
    answers = cache()
    for value in (b"forged", b"genuine", b"forged too"):
        answers.add(D1, value)

    assert walk(answers, D1) == [b"forged", b"genuine", b"forged too"]


def test_an_answer_that_comes_twice_is_one() -> None:
    """Delivery is at least once."""
    answers = cache()

    assert [answers.add(D1, b"a"), answers.add(D1, b"a"), answers.add(D1, b"b")] == [
        True,
        False,
        True,
    ]
    assert walk(answers, D1) == [b"a", b"b"]


def test_the_tag_means_the_same_on_every_replica() -> None:
    """A load balancer sends each poll elsewhere."""
    one, other = cache(), cache()
    for value in (b"a", b"b"):
        one.add(D1, value)
    for value in (b"b", b"a"):
        other.add(D1, value)
    seen = one.find(D1, None)

    assert seen == Answer(b"a", sha256(b"a").hexdigest()[:32])
    assert other.find(D1, seen.tag) is None
    assert walk(other, D1) == [b"b", b"a"]


def test_a_tag_that_is_not_known_counts_as_none() -> None:
    """After a restart a client must still see everything."""
    answers = cache()
    answers.add(D1, b"a")

    assert walk(answers, D1, "0" * 32) == [b"a"]


def test_a_flood_of_answers_to_one_request_keeps_the_last() -> None:
    """What a resent request brings must be seen."""
    answers = cache(per_request=3)
    for number in range(10):
        answers.add(D1, b"%d" % number)

    assert walk(answers, D1) == [b"7", b"8", b"9"]


def test_the_cache_is_bounded_in_requests() -> None:
    answers = cache(requests=2)
    for digest in (D1, D2, D3):
        answers.add(digest, b"a")

    assert [len(walk(answers, d)) for d in (D1, D2, D3)] == [0, 1, 1]


def test_the_cache_is_bounded_in_bytes() -> None:
    """Answers are as large as certificate chains are."""
    answers = cache(total_bytes=10_000)
    for number in range(200):
        answers.add(number.to_bytes(32, "big"), bytes(1000))

    assert answers.bytes <= 10_000
    assert 0 < len(answers) < 10


def test_an_answer_expires() -> None:
    clock = Clock()
    answers = cache(clock=clock)
    answers.add(D1, b"a")
    clock.now += 61

    assert answers.find(D1, None) is None
    assert (len(answers), answers.bytes) == (0, 0)


async def test_an_answer_wakes_those_who_wait_for_it_and_nobody_else() -> None:
    answers = cache()
    with answers.waiting(D1) as mine, answers.waiting(D1) as too, answers.waiting(D2) as other:
        answers.add(D1, b"a")

        assert (mine.done(), too.done(), other.done()) == (True, True, False)


async def test_whoever_gives_up_leaves_nothing_behind() -> None:
    """Digests of waiters are chosen by strangers."""
    answers = cache()
    with answers.waiting(D1), answers.waiting(D1):
        pass

    async def impatient() -> None:
        with answers.waiting(D2) as woken:
            await woken

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(impatient(), 0)

    assert answers._waiting == {}


async def test_all_are_sent_away_when_the_gateway_stops() -> None:
    """A drain must not take as long as a long poll."""
    answers = cache()
    with answers.waiting(D1) as before:
        answers.send_away()
        with answers.waiting(D2) as later:
            assert before.done()
            assert later.done()
