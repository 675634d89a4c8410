"""The agent over HTTP, against a gateway that behaves and against whoever may stand in its place."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.agents import Machine, Service, Time
from tests.support.crypto import NODE_ID, NOW
from tests.support.http_service import Answer, Call, ScriptedGateway, serving
from tests.support.traced import MACHINES, span_id, traced
from watchword.handlers.errors import BadArgument
from watchword.schemas.requests import Claims
from watchword.schemas.traceparent import TraceContext
from watchword.streams.agent import tracing
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.bootstrap import bootstrap
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import (
    GaveUp,
    PinMismatch,
    TransportRefused,
    TransportUnavailable,
)
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.agent.join import JoinOptions, JoinResult, join
from watchword.streams.tracing.agent import TracedAgent

QUICK = Pace(first_s=0.01, cap_s=0.05, resend_after_s=0.4, poll_s=0.2)


async def joins(
    machine: Machine, url: str, *, options: JoinOptions | None = None, pace: Pace = QUICK
) -> JoinResult:
    transport = HttpTransport(url, pace=pace)
    try:
        return await join(
            machine.state,
            transport,
            machine.prover,
            options or JoinOptions(claims=Claims, give_up_after_s=20),
            report=machine.progress.append,
            pace=pace,
        )
    finally:
        await transport.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "state", now=datetime.now(UTC))


@pytest.fixture
def gateway(machine: Machine) -> ScriptedGateway:
    return ScriptedGateway(machine.service)


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


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 413, 415])
async def test_address_that_takes_no_requests_is_said_so(
    machine: Machine, gateway: ScriptedGateway, status: int
) -> None:
    """A mistyped address must not look like a slow service; a redirect must not be followed."""
    body = b'{"type":"urn:watchword:problem:too-large"}'
    gateway.before = lambda call: (
        Answer(status, body, {"Location": "http://localhost:1/"}) if call.method == "POST" else None
    )
    async with serving(gateway) as url:
        with pytest.raises(TransportRefused, match=rf"/v1/joins answers {status} \(too-large\)"):
            await joins(machine, url)

    exchange = machine.keystore.exchange()
    assert exchange is not None
    assert exchange.round() is not None


async def test_text_of_a_gateway_is_never_repeated(
    machine: Machine, gateway: ScriptedGateway
) -> None:
    """What anybody says ends up on a terminal and in logs."""
    body = b'{"type":"urn:watchword:problem:\\u001b[2J<script>"}'
    gateway.before = lambda call: Answer(400, body) if call.method == "POST" else None
    async with serving(gateway) as url:
        with pytest.raises(TransportRefused) as raised:
            await joins(machine, url)

    assert "script" not in str(raised.value)
    assert str(raised.value).endswith("answers 400")


async def test_endless_body_is_cut_off(machine: Machine, gateway: ScriptedGateway) -> None:
    """A gateway must not fill a machine's memory."""
    gateway.before = lambda call: (
        Answer(200, b"x" * (3 * 1024 * 1024)) if call.path == "/v1/keys" else None
    )
    async with serving(gateway) as url:
        with pytest.raises(TransportRefused, match="more than"):
            await bootstrap(
                machine.state.parent / "new", HttpTransport(url), pin="sha256:" + "0" * 64
            )


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


async def test_proxy_of_the_environment_is_used_only_when_told(
    machine: Machine, gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that something else set must not decide whom a machine asks."""

    async def proxy(call: Call) -> Answer:
        assert call.path == "/v1/keys"
        return Answer(200, b"from the proxy")

    async with serving(gateway) as url, serving(proxy) as proxy_url:
        monkeypatch.setenv("HTTP_PROXY", proxy_url)
        monkeypatch.setenv("http_proxy", proxy_url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        plain, told = HttpTransport(url), HttpTransport(url, use_environment_proxy=True)
        assert await plain.key_set() == machine.service.key_set()
        assert await told.key_set() == b"from the proxy"
        await plain.close()
        await told.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gateway",
        "ftp://x",
        "https://",
        "https://u:p@x",
        "https://x?a=b",
        "https://x:0",
        "http://[x",
    ],
)
def test_address_that_is_none_is_said_so(url: str) -> None:
    """Before anything is written or sent."""
    with pytest.raises(BadArgument):
        HttpTransport(url)


class Tls:
    """A certificate for localhost, with its dates."""

    def __init__(self, folder: Path, not_before: datetime, not_after: datetime) -> None:
        """Write certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(not_before)
            .not_valid_after(not_after)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, SHA256())
        )
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(certificate.public_bytes(Encoding.PEM))
        key_file = folder / "tls.key"
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.ca_file, key_file)


async def test_tls_takes_only_certificates_of_its_file(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    """TLS keeps who joins private; a stranger's certificate would not."""
    now = datetime.now(UTC)
    tls = Tls(tmp_path, now - timedelta(days=1), now + timedelta(days=1))
    async with serving(gateway, tls=tls.context) as url:
        good, bad = HttpTransport(url, ca_file=tls.ca_file), HttpTransport(url)
        assert await good.key_set() == gateway.service.key_set()
        with pytest.raises(TransportUnavailable, match="the certificate is not accepted: self"):
            await bad.key_set()
        await good.close()
        await bad.close()
        with pytest.raises(BadArgument):
            await HttpTransport(url, ca_file=tmp_path / "none.pem").key_set()


async def test_machine_in_1970_joins_over_tls(
    machine: Machine, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    """Every certificate lies in its future; only a join gives it the time and a node's identity."""
    # OpenSSL asks the system for the time, so it is the certificate that lies in the future here.
    now = datetime.now(UTC)
    tls = Tls(tmp_path, now + timedelta(days=300), now + timedelta(days=400))
    time = Time(datetime(1970, 1, 1, tzinfo=UTC))
    clock = AgentClock(lambda: time.wall_s)
    gateway.reactions = [machine.service.joined]
    async with serving(gateway, tls=tls.context) as url:
        right = HttpTransport(url, ca_file=tls.ca_file)
        with pytest.raises(TransportUnavailable):
            await right.key_set()
        transport = HttpTransport(url, ca_file=tls.ca_file, clock=clock, pace=QUICK)
        result = await join(
            machine.state,
            transport,
            machine.prover,
            JoinOptions(claims=Claims, give_up_after_s=20),
            pace=QUICK,
        )
        # As soon as the clock is set, dates count again.
        time.wall_s = now.timestamp() + 3600
        with pytest.raises(TransportUnavailable):
            await transport.key_set()
        await transport.close()
        await right.close()

    assert result.identity.node.node_id == NODE_ID


async def test_date_of_a_gateway_is_a_hint_to_a_machine_without_time(
    gateway: ScriptedGateway,
) -> None:
    """It picks the key of today from a set that was published weeks ago."""
    clock = AgentClock(lambda: 0.0)
    clock.learn(NOW)
    date = format_datetime(NOW + timedelta(days=9), usegmt=True)
    gateway.before = lambda _: Answer(200, b"x", {"Date": date})
    async with serving(gateway) as url:
        transport = HttpTransport(url, clock=clock)
        assert clock.is_guess
        await transport.key_set()
        await transport.close()

    assert not clock.is_guess
    assert timedelta(0) <= clock.now() - (NOW + timedelta(days=9)) < timedelta(minutes=1)


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


async def test_pin_decides_and_not_the_address(machine: Machine, tmp_path: Path) -> None:
    """Whoever sits at the gateway's address can serve keys, and none of them is taken."""
    async with serving(ScriptedGateway(Service())) as url:
        transport = HttpTransport(url)
        with pytest.raises(PinMismatch):
            await bootstrap(tmp_path / "new", transport, pin=machine.service.pin)
        await transport.close()


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
