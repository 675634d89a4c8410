"""The agent over HTTP, against a gateway that has its troubles: a join gets through, with the same bytes."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256

import pytest

from tests.support.agents import Machine, Service, Time
from tests.support.crypto import NODE_ID
from tests.support.http_joins import joins
from tests.support.http_service import Answer, Call, ScriptedGateway, serving
from tests.support.traced import MACHINES, span_id, traced
from watchword.schemas.requests import Claims
from watchword.schemas.traceparent import TraceContext
from watchword.streams.agent import tracing
from watchword.streams.agent.bootstrap import bootstrap
from watchword.streams.agent.errors import GaveUp, TransportUnavailable
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.agent.join import JoinOptions, join
from watchword.streams.tracing.agent import TracedAgent


async def test_machine_joins_over_http(machine: Machine, gateway: ScriptedGateway) -> None:
    """The usual way in, from the pin to the files."""
    gateway.reactions = [
        lambda request: machine.service.approval(request, seconds=1),
        machine.service.joined,
    ]
    async with serving(gateway) as url:
        await bootstrap(machine.state.parent / "new", HttpTransport(url), pin=machine.service.pin)
        machine.state = machine.state.parent / "new"
        result = await joins(machine, url)

    assert result.identity.node.node_id == NODE_ID
    assert len(set(gateway.posted)) == 2


async def test_forged_answers_do_not_hide_the_genuine_one(
    machine: Machine, gateway: ScriptedGateway
) -> None:
    """The gateway cannot tell them apart; the agent can, and asks for what comes after."""
    stranger = Service()

    def forge(request: bytes) -> bytes:
        digest = sha256(request).hexdigest()
        gateway.answers[digest] = [
            b"junk",
            stranger.refused(request),
            stranger.failed(request, "INVALID_INPUT"),
        ]
        return machine.service.joined(request)

    gateway.reactions = [forge]
    async with serving(gateway) as url:
        await joins(machine, url)

    polls = [call for call in gateway.calls if "/joins/" in call.path]
    assert len({call.query.get("after") for call in polls}) == 4
    assert len(gateway.posted) == 1


async def test_lost_answer_is_asked_for_with_the_same_bytes(
    machine: Machine, gateway: ScriptedGateway
) -> None:
    """A worker's answer may be lost with a gateway; the request's own bytes find it again."""
    gateway.reactions = [lambda _: None, lambda _: None, machine.service.joined]
    async with serving(gateway) as url:
        await joins(machine, url)

    assert len(gateway.posted) == 3
    assert len(set(gateway.posted)) == 1


@pytest.mark.parametrize(
    "trouble",
    [
        Answer(500, b"x"),
        Answer(502),
        Answer(503, headers={"Retry-After": "0"}),
        Answer(429, headers={"Retry-After": "junk"}),
        Answer(408),
        Answer(202, b"0123456789", cut=5),
    ],
    ids=["500", "502", "503", "429", "408", "cut off"],
)
async def test_trouble_on_the_way_is_waited_out(
    machine: Machine, gateway: ScriptedGateway, trouble: Answer
) -> None:
    """Load balancers, restarts and overload are everyday; none of them says no."""
    left = 4

    def twice_each(call: Call) -> Answer | None:
        nonlocal left
        if "/joins" in call.path and left:
            left -= 1
            return trouble
        return None

    gateway.before = twice_each
    gateway.reactions = [machine.service.joined] * 3
    async with serving(gateway) as url:
        await joins(machine, url)

    assert left == 0
    assert len(set(gateway.posted)) == 1


async def test_connection_that_ends_without_an_answer_is_tried_again(
    machine: Machine, gateway: ScriptedGateway
) -> None:
    """A gateway that dies in the middle of a request says nothing at all."""
    left = 2

    async def dying(call: Call) -> Answer | None:
        nonlocal left
        if call.method == "POST" and left:
            left -= 1
            return None
        return await gateway(call)

    gateway.reactions = [machine.service.joined]
    async with serving(dying) as url:
        await joins(machine, url)

    assert left == 0


async def test_gateway_that_is_nobody_is_unavailable(machine: Machine) -> None:
    """The exit code tells a provisioning tool that trying later may help."""
    async with serving(ScriptedGateway(machine.service)) as url:
        pass
    with pytest.raises(TransportUnavailable) as raised:
        await HttpTransport(url).key_set()

    assert raised.value.exit_code == 69


async def test_join_gives_up_when_told_and_goes_on_later(
    machine: Machine, gateway: ScriptedGateway
) -> None:
    """A provisioning step has its own time limit, and must not cost the round."""
    async with serving(gateway) as url:
        with pytest.raises(GaveUp) as raised:
            await joins(machine, url, options=JoinOptions(claims=Claims, give_up_after_s=0.5))
        gateway.reactions = [machine.service.joined]
        await joins(machine, url)

    assert raised.value.exit_code == 75
    assert len(set(gateway.posted)) == 1


async def test_gateway_that_does_not_hold_polls_is_not_hammered(gateway: ScriptedGateway) -> None:
    """A proxy may answer at once what was meant to wait."""
    gateway.before = lambda call: Answer(202) if "/joins/" in call.path else None
    async with serving(gateway) as url:
        transport = HttpTransport(url)
        async with transport.conversation(bytes(32)) as conversation:
            began = asyncio.get_running_loop().time()
            assert await conversation.receive(bytes(32), 25) is None
            assert asyncio.get_running_loop().time() - began >= 0.9
        await transport.close()


@pytest.mark.parametrize(
    ("header", "least"),
    [
        ("7", 7),
        (format_datetime(datetime.now(UTC) + timedelta(days=400), usegmt=True), 3600),
        ("999999999", 3600),
        ("-5", 0),
        ("Thu, 99 Foo 2020", 0),
        (format_datetime(datetime(1990, 1, 1, tzinfo=UTC), usegmt=True), 0),
    ],
    ids=["seconds", "far date", "far seconds", "negative", "junk", "past"],
)
async def test_retry_after_is_heeded_and_bounded(
    machine: Machine, gateway: ScriptedGateway, header: str, least: float
) -> None:
    """An overloaded gateway is left alone as long as it asks, and nobody silences a machine for good."""
    time = Time()
    left = 1

    def once(call: Call) -> Answer | None:
        nonlocal left
        if call.method == "POST" and left:
            left -= 1
            return Answer(503, headers={"Retry-After": header})
        return None

    gateway.before = once
    gateway.reactions = [machine.service.joined]
    async with serving(gateway) as url:
        transport = HttpTransport(url, pace=time.pace)
        await join(
            machine.state, transport, machine.prover, JoinOptions(claims=Claims), pace=time.pace
        )
        await transport.close()

    assert least <= time.slept[0] <= max(1.0, least * 1.25)


async def test_a_machines_trace_goes_with_its_requests_and_nothing_else(
    machine: Machine, gateway: ScriptedGateway
) -> None:
    """For the service to link to; polls and documents need none, and without a trace there is no header."""
    process = traced()
    gateway.reactions = [machine.service.joined]
    tracing.install(TracedAgent(process.spans, MACHINES))
    try:
        async with serving(gateway) as url:
            await joins(machine, url)
    finally:
        tracing.install(tracing.Untraced())

    sent = {
        (call.method, call.headers["traceparent"])
        for call in gateway.calls
        if "traceparent" in call.headers
    }
    joining, asking = process.one("join"), process.one("ask")
    context = TraceContext(MACHINES.trace_id, span_id(asking), is_sampled=True)
    assert sent == {("POST", context.write())}
    assert joining.parent is not None
    assert joining.parent.span_id == MACHINES.span_id
    assert asking.parent is not None
    assert asking.parent.span_id == span_id(joining)
    assert tracing.traceparent() is None


async def test_a_machine_that_traces_nothing_passes_on_what_started_it(
    machine: Machine, gateway: ScriptedGateway
) -> None:
    """Whatever provisions machines may be traced itself, by a variable and without a library."""
    gateway.reactions = [machine.service.joined]
    tracing.install(tracing.Untraced(MACHINES))
    try:
        async with serving(gateway) as url:
            await joins(machine, url)
    finally:
        tracing.install(tracing.Untraced())

    posted = [call.headers.get("traceparent") for call in gateway.calls if call.method == "POST"]
    assert set(posted) == {MACHINES.write()}
