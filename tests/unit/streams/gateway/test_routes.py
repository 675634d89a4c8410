"""What machines are answered: the answer to their request, published documents, and nothing else."""

import asyncio
import time
from collections import Counter
from dataclasses import replace
from hashlib import sha256

import httpx
import pytest

from tests.support.gateway import JSON, location_of, make_answer, make_request
from tests.support.gateway_desk import NOBODY_KNOWS, asking, check_problem, make_desk
from watchword.schemas.topics import CRL_KEY, KEY_SET_KEY, TRUST_BUNDLE_KEY
from watchword.streams.gateway.options import Limits

REQUEST = make_request()


async def test_an_unknown_request_looks_as_one_that_is_pending() -> None:
    """Nobody learns from the gateway what somebody else has asked."""
    desk = make_desk()
    async with asking(desk) as client:
        await client.post("/v1/joins", content=REQUEST, headers=JSON)
        pending = await client.get(f"{location_of(REQUEST)}?wait=0")
        unknown = await client.get(f"{NOBODY_KNOWS}?wait=0")
        loop = asyncio.get_running_loop()
        waits: list[float] = []
        for path in (location_of(REQUEST), NOBODY_KNOWS):
            started = loop.time()
            assert (await client.get(f"{path}?wait=1")).status_code == 202
            waits.append(loop.time() - started)

    assert pending.status_code == unknown.status_code == 202
    assert (pending.headers, pending.content) == (unknown.headers, unknown.content)
    assert all(0.6 <= wait < 1.5 for wait in waits)


async def test_polls_that_came_together_do_not_end_together() -> None:
    """Thousands would come again in one wave for as long as they wait, and whoever joins then waits behind them."""
    async with asking(make_desk()) as client:
        loop = asyncio.get_running_loop()

        async def poll() -> float:
            assert (await client.get(f"{NOBODY_KNOWS}?wait=1")).status_code == 202
            return loop.time()

        ends = await asyncio.gather(*(poll() for _ in range(12)))

    # Twelve draws from 0.2 s are within 0.03 s of each other once in a hundred million times.
    assert max(ends) - min(ends) > 0.03


async def test_polls_without_an_answer_end_a_few_in_a_turn() -> None:
    """A join takes some ten turns of the event loop; if thousands of idle machines were answered in each, it would come late."""
    turn, ends = 0, Counter[int]()

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    limits = replace(Limits(), waiters_per_address=300)
    async with asking(make_desk(limits=limits)) as client:

        async def poll() -> None:
            assert (await client.get(f"{NOBODY_KNOWS}?wait=1")).status_code == 202
            ends[turn] += 1

        polls = [asyncio.create_task(poll()) for _ in range(300)]
        await asyncio.sleep(0.5)
        time.sleep(0.7)  # noqa: ASYNC251 - so that the time of all is over at once
        counting = asyncio.create_task(count())
        await asyncio.gather(*polls)
        counting.cancel()

    assert ends.total() == 300
    assert max(ends.values()) <= 40


async def test_answers_differ_in_nothing_but_their_bytes() -> None:
    """A refusal must look as a join to whoever watches the gateway."""
    desk = make_desk()
    other = make_request()
    for request, says in ((REQUEST, "joined!"), (other, "refused")):
        desk.answers.add(sha256(request).digest(), make_answer(request, says))
    async with asking(desk) as client:
        joined, refused = [await client.get(location_of(r)) for r in (REQUEST, other)]

    def shape(response: httpx.Response) -> dict[str, str]:
        return {**response.headers, "etag": ""}

    assert joined.status_code == refused.status_code == 200
    assert shape(joined) == shape(refused)
    assert joined.headers["cache-control"] == "no-store"


async def test_a_client_that_does_not_believe_an_answer_gets_the_next() -> None:
    """An answer may be forged; only the client can tell."""
    desk = make_desk()
    digest = sha256(REQUEST).digest()
    desk.answers.add(digest, b"forged")
    async with asking(desk) as client:
        first = await client.get(location_of(REQUEST))
        after = first.headers["etag"].strip('"')
        poll = asyncio.create_task(
            client.get(location_of(REQUEST), params={"wait": 25, "after": after})
        )
        desk.answers.add(digest, b"genuine")
        second = await poll

    assert (first.content, second.content) == (b"forged", b"genuine")


@pytest.mark.parametrize("query", ["wait=x", "wait=-1", "wait=", "after=x", "wait=1.5"])
async def test_a_bad_parameter_is_told(query: str) -> None:
    async with asking(make_desk()) as client:
        check_problem(await client.get(f"{NOBODY_KNOWS}?{query}"), 400, "bad-parameter")


@pytest.mark.parametrize("digest", ["0" * 63, "0" * 65, "A" * 64, "x" * 64, "%00" * 64])
async def test_what_is_no_digest_is_not_found(digest: str) -> None:
    async with asking(make_desk()) as client:
        check_problem(await client.get(f"/v1/joins/{digest}"), 404, "not-found")


async def test_published_documents_are_served_as_they_were_read() -> None:
    """They are signed: nothing may touch them."""
    desk = make_desk()
    desk.published.put(KEY_SET_KEY, b"keys")
    desk.published.put(TRUST_BUNDLE_KEY, b"bundle")
    desk.published.put(CRL_KEY, b"\x30\x00")
    desk.published.put(b"another", b"x")
    async with asking(desk) as client:
        paths = ("/v1/keys", "/v1/trust-bundle", "/v1/crl")
        found = [await client.get(path) for path in paths]
        etag = found[0].headers["etag"]
        unchanged = await client.get("/v1/keys", headers={"If-None-Match": etag})
        desk.published.put(KEY_SET_KEY, b"newer keys")
        newer = await client.get("/v1/keys", headers={"If-None-Match": etag})

    assert [r.content for r in found] == [b"keys", b"bundle", b"\x30\x00"]
    assert [r.headers["content-type"] for r in found] == [
        "application/jose",
        "application/jose",
        "application/pkix-crl",
    ]
    assert all("max-age" in r.headers["cache-control"] for r in found)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert (newer.status_code, newer.content) == (200, b"newer keys")


async def test_documents_that_are_not_known_yet_are_told_apart_from_none() -> None:
    """An agent waits for keys; it does without a CRL where there is none."""
    async with asking(make_desk()) as client:
        check_problem(await client.get("/v1/keys"), 503, "not-yet-known")
        check_problem(await client.get("/v1/trust-bundle"), 503, "not-yet-known")
        check_problem(await client.get("/v1/crl"), 404, "not-found")


async def test_a_document_that_was_withdrawn_is_gone() -> None:
    desk = make_desk()
    desk.published.put(CRL_KEY, b"\x30\x00")
    desk.published.put(CRL_KEY, None)
    async with asking(desk) as client:
        check_problem(await client.get("/v1/crl"), 404, "not-found")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/joins/", "/metrics", "/healthz", "/v1/keys/"])
async def test_there_is_nothing_else(path: str) -> None:
    """Health and metrics are on a listener of their own."""
    async with asking(make_desk()) as client:
        check_problem(await client.get(path), 404, "not-found")


async def test_another_method_is_told_which_ones_there_are() -> None:
    async with asking(make_desk()) as client:
        response = await client.delete("/v1/joins")

    check_problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "POST"
