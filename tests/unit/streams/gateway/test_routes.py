"""What machines are answered, without a network."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import cast

import httpx
import pytest
from structlog.testing import capture_logs

from tests.support.gateway import JSON, location_of, make_answer, make_request
from tests.support.traced import MACHINES, linked, span_id, trace_id, traced
from watchword.handlers.errors import Unavailable
from watchword.schemas.requests import ADDRESS_HEADER
from watchword.schemas.topics import CRL_KEY, KEY_SET_KEY, TRUST_BUNDLE_KEY
from watchword.schemas.traceparent import TraceContext, trace_id_of
from watchword.streams.gateway.addresses import Proxies
from watchword.streams.gateway.admission import Admitted
from watchword.streams.gateway.answers import Answers
from watchword.streams.gateway.envelope import Envelope
from watchword.streams.gateway.options import Limits, Timings
from watchword.streams.gateway.pending import Pending
from watchword.streams.gateway.published import Published
from watchword.streams.gateway.requests import Headers, Place, Requests
from watchword.streams.gateway.routes import Desk, application
from watchword.streams.gateway.shedding import Window
from watchword.streams.tracing.gateway import TracedGateway

NOBODY_KNOWS = "/v1/joins/" + "0" * 64
REQUEST = make_request()


@dataclass
class FakeRequests:
    """Stands for Kafka: keeps what was sent, or is away."""

    sent: list[tuple[Admitted, Headers]] = field(default_factory=list[tuple[Admitted, Headers]])
    is_away: bool = False
    is_broken: bool = False
    known_problem: str | None = None
    may_go_on: asyncio.Event | None = None
    """What sends wait for."""
    came: asyncio.Event = field(default_factory=asyncio.Event)
    window: Window = field(default_factory=lambda: Window(2000, deadline_s=5.0))

    async def has_all_of(self, count: int) -> None:
        """Return when so many have come."""
        while len(self.sent) < count:
            self.came.clear()
            await self.came.wait()

    def problem(self) -> str | None:
        """Return why nothing can be sent."""
        return self.known_problem

    def place(self) -> Place | None:
        """Return room for one more."""
        begun = self.window.begin()
        return None if begun is None else Place(self.window, begun, self._keep)

    async def _keep(self, admitted: Admitted, headers: Headers) -> None:
        if self.is_away:
            raise Unavailable
        if self.is_broken:
            message = "a bug that quotes the evidence: s3cret"
            raise RuntimeError(message)
        self.sent.append((admitted, headers))
        self.came.set()
        if self.may_go_on is not None:
            await self.may_go_on.wait()


def make_desk(
    kafka: FakeRequests | None = None,
    *,
    limits: Limits | None = None,
    timings: Timings | None = None,
) -> Desk:
    """Return a desk without Kafka."""
    limits, timings = limits or Limits(), timings or Timings()
    return Desk(
        limits,
        timings,
        cast("Requests", kafka or FakeRequests()),
        Pending(window_s=timings.resend_window_s, capacity=100),
        Answers(requests=100, total_bytes=10**6, per_request=4, ttl_s=900.0),
        Published(),
    )


@asynccontextmanager
async def asking(desk: Desk, *proxies: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client of the application, at 127.0.0.1."""
    app = Envelope(application(desk), Proxies(proxies), desk.limits)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


def check_problem(response: httpx.Response, status: int, slug: str) -> None:
    """Check that this is that problem, in the one form of all problems."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert response.json()["type"] == f"urn:watchword:problem:{slug}"


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


async def test_a_request_is_taken_and_its_address_is_its_digest() -> None:
    """No client chooses the key of the cache."""
    kafka = FakeRequests()
    async with asking(make_desk(kafka)) as client:
        response = await client.post("/v1/joins", content=REQUEST, headers=JSON)

    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/joins/{sha256(REQUEST).hexdigest()}"
    assert (response.headers["retry-after"], response.content) == ("1", b"")
    assert [admitted.body for admitted, _ in kafka.sent] == [REQUEST]


async def test_the_same_bytes_again_get_the_same_address_and_go_to_kafka_once() -> None:
    """A client that lost the 202 must be able to ask again, without making work."""
    kafka = FakeRequests()
    async with asking(make_desk(kafka)) as client:
        first, second = [
            await client.post("/v1/joins", content=REQUEST, headers=JSON) for _ in range(2)
        ]

    assert (first.status_code, first.headers) == (second.status_code, second.headers)
    assert len(kafka.sent) == 1


@pytest.mark.parametrize(
    ("headers", "body", "status", "slug"),
    [
        pytest.param({}, REQUEST, 415, "media-type", id="no content type"),
        pytest.param({"Content-Type": "text/plain"}, REQUEST, 415, "media-type", id="text"),
        pytest.param(JSON | {"Content-Encoding": "gzip"}, REQUEST, 415, "media-type", id="gzip"),
        pytest.param(JSON, b"x" * (512 * 1024 + 1), 413, "too-large", id="too large"),
        pytest.param(JSON, b"{}", 400, "undecodable", id="not a request"),
        pytest.param(JSON, make_request(b"no CSR"), 400, "csr-malformed", id="no CSR"),
    ],
)
async def test_what_no_worker_could_judge_is_told_so_and_never_reaches_kafka(
    headers: dict[str, str], body: bytes, status: int, slug: str
) -> None:
    """Every worker would have to read it."""
    kafka = FakeRequests()
    async with asking(make_desk(kafka)) as client:
        response = await client.post("/v1/joins", content=body, headers=headers)

    check_problem(response, status, slug)
    assert kafka.sent == []


async def test_a_content_type_with_a_parameter_is_json() -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    async with asking(make_desk()) as client:
        assert (await client.post("/v1/joins", content=REQUEST, headers=headers)).is_success


async def test_when_kafka_is_away_the_client_is_told_to_send_again() -> None:
    """And it may: nothing remembers the failure."""
    kafka = FakeRequests(is_away=True)
    async with asking(make_desk(kafka)) as client:
        away = await client.post("/v1/joins", content=REQUEST, headers=JSON)
        kafka.is_away = False
        back = await client.post("/v1/joins", content=REQUEST, headers=JSON)

    check_problem(away, 503, "unavailable")
    assert away.headers["retry-after"] == "1"
    assert (back.status_code, len(kafka.sent)) == (202, 1)


async def test_a_bug_tells_the_client_and_the_log_nothing_of_what_was_sent() -> None:
    """Messages of exceptions quote what they stumbled over."""
    async with asking(make_desk(FakeRequests(is_broken=True))) as client:
        with capture_logs() as logs:
            response = await client.post("/v1/joins", content=REQUEST, headers=JSON)

    check_problem(response, 500, "internal")
    (failure,) = [line for line in logs if line["log_level"] == "error"]
    assert failure["error"] == "RuntimeError"
    assert "s3cret" not in response.text + json.dumps(logs)


async def test_the_log_has_neither_bodies_nor_digests_nor_text_of_the_client() -> None:
    """A digest polls the answer; a path is whatever a stranger writes."""
    async with asking(make_desk()) as client:
        with capture_logs() as logs:
            await client.post("/v1/joins", content=REQUEST, headers=JSON)
            await client.get(location_of(REQUEST))
            await client.request("HOSTILE", "/hostile?hostile=1")

    written = json.dumps(logs)
    assert [line["event"] for line in logs] == ["request"] * 3
    assert [line["route"] for line in logs] == ["/v1/joins", "/v1/joins/{digest}", "other"]
    assert [line["request_id"] for line in logs] == [json.loads(REQUEST)["requestId"], None, None]
    assert sha256(REQUEST).hexdigest()[:16] not in written
    assert "ostile" not in written.lower()


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
    assert all(1.0 <= wait < 1.5 for wait in waits)


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


@pytest.mark.parametrize(
    ("traceparent", "is_passed_on"),
    [
        (MACHINES.write(), True),
        (MACHINES.write().upper(), False),
        ("hostile", False),
    ],
)
async def test_a_trace_context_is_passed_on_only_in_its_one_form(
    traceparent: str, *, is_passed_on: bool
) -> None:
    """It becomes a header of a record that others parse."""
    kafka = FakeRequests()
    async with asking(make_desk(kafka)) as client:
        headers = JSON | {"traceparent": traceparent}
        await client.post("/v1/joins", content=REQUEST, headers=headers)

    ((_, found),) = kafka.sent
    beside = (ADDRESS_HEADER, b"127.0.0.1")
    assert list(found) == ([("traceparent", traceparent.encode())] if is_passed_on else []) + [
        beside
    ]


@pytest.mark.parametrize("said", [[], [MACHINES.write()], [MACHINES.write()] * 2, ["hostile"]])
async def test_a_request_is_followed_in_its_own_trace_and_the_machines_is_linked(
    said: list[str],
) -> None:
    """A machine chooses no trace of ours, and learns nothing of them."""
    kafka, process = FakeRequests(), traced()
    desk = replace(make_desk(kafka), tracing=TracedGateway(process.spans, "join.requests"))
    async with asking(desk) as client:
        headers = [*JSON.items(), *(("TraceParent", one) for one in said), ("tracestate", "a=b")]
        first = await client.post("/v1/joins", content=REQUEST, headers=headers)
        again = await client.post("/v1/joins", content=REQUEST, headers=headers)
        junk = await client.post("/v1/joins", content=b"{}", headers=headers)

    received, copy = process.ended("POST /v1/joins")
    sending = process.one("send join.requests")
    trace = trace_id_of(sha256(REQUEST).digest())
    assert [trace_id(span) for span in (received, sending, copy)] == [trace] * 3
    assert received.parent is None
    assert sending.parent is not None
    assert sending.parent.span_id == span_id(received)
    expected = [(MACHINES.trace_id, MACHINES.span_id)] if said == [MACHINES.write()] else []
    assert linked(received) == linked(copy) == expected
    assert [dict(span.attributes or {})["watchword.repeated"] for span in (received, copy)] == [
        False,
        True,
    ]
    ((_, found),) = kafka.sent
    context = TraceContext(trace, span_id(sending), is_sampled=True)
    assert dict(found)["traceparent"] == context.write().encode()
    assert "tracestate" not in dict(found)
    assert junk.status_code == 400
    assert len(process.names()) == 3
    for response in (first, again, junk):
        assert not [name for name in response.headers if "trace" in name]
        assert f"{trace:032x}" not in response.text


async def test_a_request_that_kafka_does_not_take_is_followed_to_there() -> None:
    """Which is when somebody looks for it."""
    process = traced()
    desk = make_desk(FakeRequests(is_away=True))
    async with asking(
        replace(desk, tracing=TracedGateway(process.spans, "join.requests"))
    ) as client:
        check_problem(
            await client.post("/v1/joins", content=REQUEST, headers=JSON), 503, "unavailable"
        )

    received = process.one("POST /v1/joins")
    assert not received.status.is_ok
    assert dict(received.attributes or {})["http.response.status_code"] == 503
    assert dict(process.one("send join.requests").attributes or {})["error.type"] == "Unavailable"


async def test_a_request_that_is_not_sampled_is_not_followed() -> None:
    """It goes its way as if nobody traced."""
    kafka, process = FakeRequests(), traced(0.0)
    desk = replace(make_desk(kafka), tracing=TracedGateway(process.spans, "join.requests"))
    headers = JSON | {"traceparent": MACHINES.write()}
    async with asking(desk) as client:
        assert (await client.post("/v1/joins", content=REQUEST, headers=headers)).status_code == 202

    assert process.names() == []
    assert len(kafka.sent) == 1
