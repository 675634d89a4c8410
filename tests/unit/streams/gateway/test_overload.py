"""Who asks for too much is turned away, and takes nothing from the others."""

import asyncio

import httpx

from tests.support.gateway import JSON, make_request
from tests.support.gateway_desk import NOBODY_KNOWS, FakeRequests, asking, check_problem, make_desk
from watchword.streams.gateway.options import Limits
from watchword.streams.gateway.routes import Desk
from watchword.streams.gateway.shedding import Window


async def test_a_client_that_is_cut_off_says_nothing_of_kafka() -> None:
    """Its request goes on and holds its room until Kafka has it; taken for late it would narrow the way for everybody."""
    may_go_on = asyncio.Event()
    kafka = FakeRequests(may_go_on=may_go_on, window=Window(3, deadline_s=5.0))
    desk = make_desk(kafka, limits=Limits(requests_per_address=100))
    async with asking(desk) as client:
        posts = [
            asyncio.create_task(client.post("/v1/joins", content=make_request(), headers=JSON))
            for _ in range(3)
        ]
        await kafka.has_all_of(3)
        for post in posts:
            post.cancel()
        await asyncio.wait(posts)
        meanwhile = kafka.place()
        may_go_on.set()
        await desk.pending.settle()
        free = [kafka.place() for _ in range(4)]

    assert meanwhile is None
    assert [place is None for place in free] == [False, False, False, True]


async def test_who_is_not_sent_gives_its_room_back() -> None:
    """Junk takes none of the way to Kafka with it."""
    kafka = FakeRequests(window=Window(1, deadline_s=5.0))
    async with asking(make_desk(kafka)) as client:
        for _ in range(3):
            junk = await client.post("/v1/joins", content=b"{}", headers=JSON)
            assert junk.status_code == 400
        sent = await client.post("/v1/joins", content=make_request(), headers=JSON)

    assert sent.status_code == 202


async def test_who_finds_no_room_on_the_way_is_told_when_to_come_again() -> None:
    """Taking on more than can be sent in time is work for nothing, for everybody; a wait has an end for each."""
    may_go_on = asyncio.Event()
    kafka = FakeRequests(may_go_on=may_go_on, window=Window(3, deadline_s=5.0))
    limits = Limits(turns_per_s=1.0, requests_per_address=100)
    async with asking(make_desk(kafka, limits=limits)) as client:
        posts = [
            asyncio.create_task(client.post("/v1/joins", content=make_request(), headers=JSON))
            for _ in range(3)
        ]
        await kafka.has_all_of(3)
        async with asyncio.timeout(10):
            turned_away = [
                await client.post("/v1/joins", content=make_request(), headers=JSON)
                for _ in range(3)
            ]
        may_go_on.set()
        taken = await asyncio.gather(*posts)
        again = await client.post("/v1/joins", content=make_request(), headers=JSON)

    for response in turned_away:
        check_problem(response, 503, "busy")
    assert [r.headers["retry-after"] for r in turned_away] == ["1", "2", "3"]
    assert {r.status_code for r in (*taken, again)} == {202}


async def test_nothing_is_checked_while_many_are_turned_away_and_kafka_is_known_to_be_away() -> (
    None
):
    """A check costs more than an answer; but whoever is alone is told that its request is none, also in an outage."""
    kafka = FakeRequests(is_away=True, known_problem="away")
    limits = Limits(turns_per_s=1.0, requests_per_address=100)
    async with asking(make_desk(kafka, limits=limits)) as client:
        junk = [await client.post("/v1/joins", content=b"{}", headers=JSON)]
        for _ in range(4):
            await client.post("/v1/joins", content=make_request(), headers=JSON)
        junk.append(await client.post("/v1/joins", content=b"{}", headers=JSON))
    check_problem(junk[0], 400, "undecodable")
    check_problem(junk[1], 503, "unavailable")


async def test_valid_requests_of_one_address_are_limited_and_junk_does_not_count() -> None:
    """A noisy neighbour behind the same address keeps nobody out."""
    limits = Limits(requests_per_address=2, requests_window_s=60.0)
    async with asking(make_desk(limits=limits)) as client:
        for _ in range(20):
            await client.post("/v1/joins", content=b"junk", headers=JSON)
        responses = [
            await client.post("/v1/joins", content=make_request(), headers=JSON) for _ in range(3)
        ]

    assert [r.status_code for r in responses] == [202, 202, 429]
    check_problem(responses[-1], 429, "too-many-requests")
    assert 1 <= int(responses[-1].headers["retry-after"]) <= 30


async def test_machines_behind_a_trusted_proxy_have_limits_of_their_own() -> None:
    """Else one machine uses up the limit of all of them."""
    limits = Limits(requests_per_address=1, requests_window_s=60.0)

    async def statuses(desk: Desk, *proxies: str) -> list[int]:
        async with asking(desk, *proxies) as client:
            return [
                (
                    await client.post(
                        "/v1/joins",
                        content=make_request(),
                        headers=JSON | {"X-Forwarded-For": forwarded},
                    )
                ).status_code
                for forwarded in ("192.0.2.1", "192.0.2.2", "192.0.2.1")
            ]

    assert await statuses(make_desk(limits=limits), "127.0.0.0/8") == [202, 202, 429]
    assert await statuses(make_desk(limits=limits)) == [202, 429, 429]


async def test_one_address_cannot_ask_without_end() -> None:
    limits = Limits(arrivals_per_address=3)
    async with asking(make_desk(limits=limits)) as client:
        responses = [await client.get(NOBODY_KNOWS) for _ in range(10)]

    assert {r.status_code for r in responses[:3]} == {202}
    check_problem(responses[-1], 429, "too-many-requests")


async def test_headers_are_bounded_in_number_and_size() -> None:
    async with asking(make_desk()) as client:
        many = await client.get(NOBODY_KNOWS, headers={f"x-{n}": "1" for n in range(70)})
        large = await client.get(NOBODY_KNOWS, headers={"x-large": "1" * 17_000})

    check_problem(many, 431, "headers-too-large")
    check_problem(large, 431, "headers-too-large")


async def test_waiters_are_bounded_for_one_address_and_for_all() -> None:
    """An open poll costs memory as long as the client likes."""
    limits = Limits(waiters_per_address=2, waiters=3)
    desk = make_desk(limits=limits)
    async with asking(desk, "127.0.0.1") as client:

        def poll(address: str) -> "asyncio.Task[httpx.Response]":
            headers = {"X-Forwarded-For": address}
            return asyncio.create_task(client.get(f"{NOBODY_KNOWS}?wait=25", headers=headers))

        polls = [poll("192.0.2.1"), poll("192.0.2.1"), poll("192.0.2.2")]
        await asyncio.sleep(0.05)
        same, another = await poll("192.0.2.1"), await poll("192.0.2.3")
        desk.answers.send_away()
        waited = await asyncio.gather(*polls)
        again = await poll("192.0.2.1")

    check_problem(same, 429, "too-many-waiters")
    check_problem(another, 503, "busy")
    assert [r.status_code for r in (*waited, again)] == [202] * 4
