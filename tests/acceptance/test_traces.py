"""One trace from the gateway over the worker to the event, with every process a real one and a collector that listens."""

import json
import urllib.request
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import server_folder
from tests.support.otlp import Collector, Span, collecting
from tests.support.sites import Site, configured, joined
from watchword.handlers.crypto.jws import unverified_payload
from watchword.schemas.topics import JOIN_REFUSED, JOIN_REQUESTS, JOIN_RESPONSES, NODE_EVENTS
from watchword.schemas.traceparent import trace_id_of
from watchword.streams.dev.kafka import EmbeddedKafka
from watchword.streams.dev.topic_reader import Read, TopicReader, reading

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(500)]

_TRACED = """\
[relay]
health_port = 0
[tracing]
endpoint = "{collector}"
"""
_SOON = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
_WITHIN_S = 60.0
_TOPICS = (JOIN_REQUESTS, JOIN_RESPONSES, NODE_EVENTS, JOIN_REFUSED)


class TracedSite(Site):
    """Sends spans soon, also from machines."""

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**_SOON, **more)


@dataclass(frozen=True)
class Deployment:
    """All of it."""

    site: Site
    collector: Collector
    kafka: str

    def reading(self) -> Any:  # noqa: ANN401 - a context manager
        """Give a reader of what comes from now on."""
        return reading(self.kafka, _TOPICS)

    def token(self) -> Path:
        """Return a file with a new token; its stem names the token's machine, which is new also if a test is run again."""
        made = self.site.asked("tokens", "create", "acme", "web")
        file = self.site.folder / f"{made['token'].split('.')[1]}.token"
        file.touch(mode=0o600)
        file.write_text(made["token"])
        return file


@pytest.fixture(scope="module")
def deployed(dsn: str, kafka_broker: EmbeddedKafka) -> Generator[Deployment]:
    """Give a deployment that traces, with a tenant in it."""
    with server_folder("traces") as folder, ExitStack() as stack:
        kafka = kafka_broker.bootstrap_servers
        collector = stack.enter_context(collecting())
        config = _TRACED.format(collector=collector.url)
        site = TracedSite(folder, configured(folder, dsn, kafka, config))
        stack.enter_context(site.serving("signer", "worker", "gateway", "relay", pools=["web"]))
        yield Deployment(site, collector, kafka)


async def until_read(reader: TopicReader, topic: str, records: list[Read]) -> Read:
    """Return the next record of a topic; all that came before it go to `records`."""
    for _ in range(300):
        records += await reader.read()
        found = [record for record in records if record.topic == topic]
        if found:
            return found[-1]
    pytest.fail(f"nothing came on {topic}")


def is_beneath(span: Span, above: Span) -> bool:
    """Tell whether one span is the child of the other."""
    return (span.trace_id, span.parent_id) == (above.trace_id, above.span_id)


def twice(spans: list[Span]) -> set[str]:
    """Return the names that two spans have."""
    return {
        name for name, spans_of_it in Counter(s.name for s in spans).items() if spans_of_it == 2
    }


def one(spans: list[Span], name: str) -> Span:
    """Return the one span of a name."""
    [found] = [span for span in spans if span.name == name]
    return found


async def test_a_join_is_one_trace_from_gateway_to_event(deployed: Deployment) -> None:
    """Where the time went, in one picture; the machine's own trace is linked, and has none of our spans."""
    site, collector = deployed.site, deployed.collector
    token = deployed.token()
    records: list[Read] = []
    async with deployed.reading() as reader:
        with site.joining(token.stem, "--token-file", str(token)) as machine:
            node = joined(machine)["node"]
        event = await until_read(reader, NODE_EVENTS, records)
    request = next(r for r in records if r.topic == JOIN_REQUESTS)
    assert request.value is not None
    trace = f"{trace_id_of(sha256(request.value).digest()):032x}"
    # Each process sends its own spans when it likes: the worker's may be here before the gateway's.
    whole = {"POST /v1/joins", "send join.requests", "process join.requests", "send node.events"}
    collector.until(
        lambda c: whole <= {s.name for s in c.of(trace)},
        "the trace is whole",
    )

    # The request's own trace
    found = collector.of(trace)
    received = one(found, "POST /v1/joins")
    sending = one(found, "send join.requests")
    judged = one(found, "process join.requests")
    assert received.parent_id == ""
    assert is_beneath(sending, received)
    assert is_beneath(judged, sending)
    for name in ("judge join-token", "settle", "send node.events"):
        assert is_beneath(one(found, name), judged), name
    assert {span.service for span in found} == {
        "watchword-gateway",
        "watchword-worker",
        "watchword-relay",
    }
    assert judged.answer == "joined"
    assert not any(span.failed for span in found)

    # Beside the records
    assert request.headers["traceparent"] == f"00-{trace}-{sending.span_id}-01"
    assert event.headers["ce_subject"] == node["nodeId"]
    assert event.headers["traceparent"] == f"00-{trace}-{judged.span_id}-01"
    assert event.headers["ce_traceparent"] == event.headers["traceparent"]

    # The machine's own trace
    collector.until(lambda c: bool(c.named("join")), "the agent has told its own")
    joining = one(collector.spans, "join")
    asking = next(s for s in collector.of(joining.trace_id) if s.name == "ask")
    assert received.links == ((asking.trace_id, asking.span_id),)
    assert {span.service for span in collector.of(joining.trace_id)} == {"watchword-agent"}

    # The batch, and what it asked others for
    linked = (trace, judged.span_id)
    collector.until(
        lambda c: any(linked in span.links for span in c.named("judge batch")), "the batch is whole"
    )
    [batch] = [span for span in collector.named("judge batch") if linked in span.links]
    beneath = {span.name for span in collector.of(batch.trace_id) if is_beneath(span, batch)}
    assert beneath == {"sign certificates", "transaction", "send join.responses"}

    # Lines
    lines = [
        json.loads(line)
        for line in (site.folder / "gateway.log").read_text().splitlines()
        if trace in line
    ]
    assert [(line["event"], line["span_id"]) for line in lines] == [("request", received.span_id)]
    assert lines[0]["request_id"] == judged.attributes["watchword.request_id"]

    secret = token.read_text().rpartition(".")[2].strip().encode()
    assert not any(secret in body for body in collector.bodies)
    assert collector.paths == {"/v1/traces"}


async def test_a_resend_tells_on_in_the_same_trace_and_makes_no_second_event(
    deployed: Deployment,
) -> None:
    """The same bytes are the same request, whenever they come and whatever the machine says of traces then."""
    site, collector = deployed.site, deployed.collector
    token = deployed.token()
    records: list[Read] = []
    async with deployed.reading() as reader:
        with site.joining(token.stem, "--token-file", str(token)) as machine:
            joined(machine)
        await until_read(reader, NODE_EVENTS, records)
        body = next(r.value for r in records if r.topic == JOIN_REQUESTS)
        assert body is not None
        trace = f"{trace_id_of(sha256(body).digest()):032x}"
        said = resend(site, body, traceparent=f"00-{trace}-{'9' * 16}-01")
        assert not [name for name in said if "trace" in name.lower()]
        collector.until(
            lambda c: {"process join.requests", "POST /v1/joins"} <= twice(c.of(trace)),
            "it was received and judged again",
        )
        records += await reader.read_to_the_end(within_s=_WITHIN_S)

    judged = [span for span in collector.of(trace) if span.name == "process join.requests"]
    assert [span.attributes["watchword.outcome"] for span in judged] == ["admitted", "repeated"]
    received = [span for span in collector.of(trace) if span.name == "POST /v1/joins"]
    assert [span.parent_id for span in received] == ["", ""]
    assert received[1].links == ((trace, "9" * 16),)
    assert len([s for s in collector.of(trace) if s.name == "settle"]) == 1
    assert len([r for r in records if r.topic == NODE_EVENTS]) == 1


async def test_a_refused_join_is_a_trace_with_a_reason_that_the_machine_does_not_see(
    deployed: Deployment,
) -> None:
    """An operator reads why from the trace; the machine gets the one answer, without a trace of ours in it."""
    site, collector = deployed.site, deployed.collector
    token, other = deployed.token(), deployed.token()
    front, _, _ = token.read_text().strip().rpartition(".")
    token.write_text(f"{front}.{other.read_text().strip().rpartition('.')[2]}")
    records: list[Read] = []
    async with deployed.reading() as reader:
        with site.joining(token.stem, "--token-file", str(token)) as machine:
            stdout, stderr = machine.communicate(timeout=150)
        assert machine.returncode == 5, stderr
        event = await until_read(reader, JOIN_REFUSED, records)
        records += await reader.read_to_the_end(within_s=_WITHIN_S)
    trace = event.headers["traceparent"].split("-")[1]
    collector.until(
        lambda c: (
            {"process join.requests", "send security.join.refused"} <= {s.name for s in c.of(trace)}
        ),
        "the trace is whole",
    )

    judged = one(collector.of(trace), "process join.requests")
    assert judged.attributes["watchword.refusal"] == "join-token:bad-secret"
    assert judged.answer == "refused"
    assert event.headers["traceparent"] == f"00-{trace}-{judged.span_id}-01"
    assert is_beneath(one(collector.of(trace), "send security.join.refused"), judged)
    # Being refused is an answer and no failure of ours; for the agent it is one.
    assert not judged.failed
    collector.until(lambda c: any(s.failed for s in c.named("join")), "the agent has told its own")
    assert [s.attributes["error.type"] for s in failed_joins(collector)] == ["JoinRefused"]

    answers = [record for record in records if record.topic == JOIN_RESPONSES]
    assert answers
    for answer in answers:
        assert answer.headers == {}
        said = unverified_payload(answer.value or b"").decode()
        assert "trace" not in said.lower()
        assert trace not in said
        assert "bad-secret" not in said
    assert "bad-secret" not in stdout + stderr
    assert trace not in stdout + stderr


def resend(site: Site, body: bytes, *, traceparent: str) -> list[str]:
    """Send a request once more, and return the names of the headers that answer it."""
    headers = {"Content-Type": "application/json", "traceparent": traceparent}
    request = urllib.request.Request(f"{site.gateway}/v1/joins", body, headers)  # noqa: S310 - our own gateway
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
        assert answer.status == 202
        return list(answer.headers)


def failed_joins(collector: Collector) -> list[Span]:
    """Return the joins that failed."""
    return [span for span in collector.named("join") if span.failed]
