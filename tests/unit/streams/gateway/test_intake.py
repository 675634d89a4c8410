"""A request is taken once, goes to Kafka as it came, and leaves nothing of itself on the way."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from structlog.testing import capture_logs

from tests.support.gateway import JSON, location_of, make_request
from tests.support.gateway_desk import FakeRequests, asking, check_problem, make_desk
from tests.support.traced import MACHINES, linked, span_id, trace_id, traced
from watchword.schemas.requests import ADDRESS_HEADER
from watchword.schemas.traceparent import TraceContext, trace_id_of
from watchword.streams.tracing.gateway import TracedGateway

REQUEST = make_request()


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
