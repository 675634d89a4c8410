"""Connections of people who do not mean well. Kafka is not needed for any of it."""

import asyncio
import re
from dataclasses import replace

import httpx
import pytest

from tests.support.gateway import limited, timed
from tests.support.raw_http import NOBODY_KNOWS, POST, connected, gateway
from tests.support.waiting import until
from watchword.schemas.topics import KEY_SET_KEY
from watchword.streams.gateway import GatewayOptions


@pytest.mark.parametrize("head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n"])
async def test_headers_that_do_not_end_are_cut_off(head: bytes) -> None:
    """Slowloris: thousands of connections that are never quite there."""
    async with gateway(timed(head_s=0.2)) as served, connected(served) as slow:
        await slow.send(head)

        assert await slow.is_closed()


async def test_headers_that_trickle_are_cut_off() -> None:
    """A byte now and then must not begin the time anew."""
    async with gateway(timed(head_s=0.5)) as served, connected(served) as slow:
        await slow.send(b"GET / HTTP/1.1\r\n")

        async def trickle() -> None:
            while True:
                await slow.send(b"X: y\r\n")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert await slow.is_closed()
        trickling.cancel()

        assert loop.time() - started < 3.0


async def test_headers_after_a_first_request_are_cut_off_too() -> None:
    """A connection that was good once is not good for ever."""
    async with gateway(timed(head_s=0.2)) as served, connected(served) as slow:
        await slow.send(b"GET /v1/keys HTTP/1.1\r\nHost: g\r\n\r\n")
        assert await slow.problem() == (503, "not-yet-known")
        await slow.send(b"GET /v1/ke")

        assert await slow.is_closed()


async def test_a_connection_serves_many_requests() -> None:
    """The deadlines must not end what is well."""
    async with gateway(timed(head_s=0.3)) as served, connected(served) as good:
        for _ in range(5):
            await good.send(b"GET /v1/keys HTTP/1.1\r\nHost: g\r\n\r\n")
            assert await good.problem() == (503, "not-yet-known")
            await asyncio.sleep(0.1)
        await good.send(f"GET {NOBODY_KNOWS}?wait=1 HTTP/1.1\r\nHost: g\r\n\r\n".encode())

        assert (await good.response())[0] == 202


async def test_an_idle_connection_is_closed() -> None:
    async with gateway(timed(keep_alive_s=1)) as served, connected(served) as idle:
        await idle.send(b"GET /v1/keys HTTP/1.1\r\nHost: g\r\n\r\n")
        await idle.response()

        assert await idle.is_closed()


async def test_a_body_that_does_not_come_is_answered() -> None:
    async with gateway(timed(body_s=0.2)) as served, connected(served) as slow:
        await slow.send(POST + b"Content-Length: 100\r\n\r\n{")

        assert await slow.problem() == (408, "timeout")
        assert await slow.is_closed()


async def test_an_endless_body_is_answered_and_cut_off() -> None:
    """What comes behind the limit is not read for ever either."""
    sent = 0
    async with gateway() as served, connected(served) as endless:
        await endless.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")

        async def pour() -> None:
            nonlocal sent
            while not endless.writer.is_closing():
                await endless.send(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
                sent += 0x8000
                await asyncio.sleep(0)

        pouring = asyncio.create_task(pour())
        assert await endless.problem() == (413, "too-large")
        assert await endless.is_closed()
        pouring.cancel()

    assert 512 * 1024 < sent < 16 * 1024 * 1024


async def test_a_body_that_says_it_is_too_large_is_not_asked_for() -> None:
    """`Expect: 100-continue` exists for that."""
    async with gateway() as served, connected(served) as polite:
        await polite.send(POST + b"Expect: 100-continue\r\nContent-Length: 600000\r\n\r\n")

        assert await polite.problem() == (413, "too-large")


async def test_a_client_that_sends_too_much_reads_why_and_may_go_on() -> None:
    """A reset in the middle of sending would hide the answer."""
    async with gateway() as served, connected(served) as large:
        await large.send(POST + b"Content-Length: 600000\r\n\r\n" + b"x" * 600_000)
        assert await large.problem() == (413, "too-large")
        await large.send(b"GET /v1/keys HTTP/1.1\r\nHost: g\r\n\r\n")

        assert await large.problem() == (503, "not-yet-known")


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"junk\r\n\r\n", id="no HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: g\r\nX: " + b"y" * 70_000, id="large header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: g\r\n" + b"X:\r\n" * 40_000 + b"\r\n", id="headers"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 40_000, id="tiny chunks"
        ),
        pytest.param(POST + b"Content-Length: ten\r\n\r\n", id="length"),
        pytest.param(POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", id="two lengths"),
        pytest.param(POST + b"Transfer-Encoding: gzip\r\n\r\n", id="encoding"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", id="chunk"),
    ],
)
async def test_what_is_no_http_is_told_so(junk: bytes) -> None:
    async with gateway() as served, connected(served) as hostile:
        await hostile.send(junk)

        assert await hostile.problem() == (400, "malformed")
        assert await hostile.is_closed()


async def test_a_body_in_chunks_is_a_body() -> None:
    """Proxies may send it so."""
    body = b"x" * 300_000
    chunks = b"".join(b"800\r\n" + body[:0x800] + b"\r\n" for _ in range(146)) + b"0\r\n\r\n"
    async with gateway() as served, connected(served) as client:
        await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)

        assert await client.problem() == (400, "undecodable")


async def test_junk_after_an_answer_has_begun_only_closes() -> None:
    """An error inside the protocol class must not reach the event loop."""
    async with gateway() as served, connected(served) as hostile:
        await hostile.send(f"GET {NOBODY_KNOWS}?wait=1 HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        await hostile.send(b"junk\r\n\r\n")

        assert (await hostile.response())[0] == 202
        assert await hostile.is_closed()


async def test_an_upgrade_is_not_for_us() -> None:
    async with gateway() as served, connected(served) as client:
        await client.send(
            b"GET /v1/keys HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )

        assert await client.problem() == (503, "not-yet-known")


async def test_connections_of_one_address_are_bounded() -> None:
    """The next is told, and gets in as soon as another has gone."""
    async with gateway(limited(connections_per_address=2)) as served:
        async with connected(served), connected(served), connected(served) as third:
            assert await third.problem() == (503, "busy")
            assert await third.is_closed()
        door = served.gateway._server._door
        await until(lambda: door._one.held == 0, "the connections are counted out")
        assert (await served.client.get("/v1/keys")).status_code == 503


async def test_connections_of_a_trusted_proxy_are_not_those_of_one_address() -> None:
    """Behind a load balancer all connections are of one address."""

    def adjust(options: GatewayOptions) -> GatewayOptions:
        options = limited(connections_per_address=1, connections=3)(options)
        return replace(options, trusted_proxies=("127.0.0.0/8",))

    async with (
        gateway(adjust) as served,
        connected(served),
        connected(served),
        connected(served) as third,
        connected(served) as fourth,
    ):
        await third.send(b"GET /v1/keys HTTP/1.1\r\nHost: g\r\n\r\n")

        assert await third.problem() == (503, "not-yet-known")
        assert await fourth.problem() == (503, "busy")


async def test_a_reader_that_does_not_read_is_cut_off() -> None:
    """Answers that nobody takes fill the memory."""
    async with (
        gateway(timed(write_s=0.5)) as served,
        connected(served, receive_bytes=4096) as deaf,
    ):
        served.gateway._published.put(KEY_SET_KEY, b"k" * 16 * 1024 * 1024)
        await deaf.send(b"GET /v1/keys HTTP/1.1\r\nHost: g\r\n\r\n")
        door = served.gateway._server._door
        await until(lambda: door._one.held == 0, "the connection is closed")


async def test_a_waiter_that_goes_away_frees_its_place() -> None:
    """Else a client that comes and goes keeps everybody from waiting."""
    async with gateway(limited(waiters_per_address=1)) as served:
        answers = served.gateway._answers
        async with connected(served) as impatient:
            await impatient.send(f"GET {NOBODY_KNOWS}?wait=25 HTTP/1.1\r\nHost: g\r\n\r\n".encode())
            await until(lambda: bool(answers._waiting), "it waits")
        await until(lambda: not answers._waiting, "its place is free")

        assert (await served.client.get(f"{NOBODY_KNOWS}?wait=1")).status_code == 202


async def test_no_response_says_what_serves_it() -> None:
    async with gateway() as served:
        response = await served.client.get(NOBODY_KNOWS)

    assert "server" not in response.headers
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "date" in response.headers  # agents whose clock is wrong take it as a hint


async def test_the_second_listener_serves_metrics_without_names_of_clients() -> None:
    """A label for each address or digest is memory that strangers fill."""
    async with gateway() as served:
        await served.client.get(NOBODY_KNOWS)
        await served.client.get("/hostile/path")
        async with httpx.AsyncClient(trust_env=False) as client:
            text = (await client.get(f"http://127.0.0.1:{served.gateway.health_port}/metrics")).text

    lines = [line for line in text.splitlines() if line.startswith("watchword_gateway_")]
    labels = set(re.findall(r'(\w+)="', "\n".join(lines)))
    assert 'watchword_gateway_requests_total{route="/v1/joins/{digest}",status="202"}' in text
    assert labels <= {"route", "status", "reason", "limit", "part", "kind", "topic", "result", "le"}
    assert not any(secret in text for secret in ("0" * 64, "hostile"))
