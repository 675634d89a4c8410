"""Whom an agent talks to over HTTP, and how little whoever answers there can do to it."""

import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.agents import Machine, Service, Time
from tests.support.crypto import NODE_ID, NOW
from tests.support.http_joins import QUICK, joins
from tests.support.http_service import Answer, Call, ScriptedGateway, serving
from watchword.handlers.errors import BadArgument
from watchword.schemas.requests import Claims
from watchword.streams.agent.bootstrap import bootstrap
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import PinMismatch, TransportRefused, TransportUnavailable
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.agent.join import JoinOptions, join


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


async def test_pin_decides_and_not_the_address(machine: Machine, tmp_path: Path) -> None:
    """Whoever sits at the gateway's address can serve keys, and none of them is taken."""
    async with serving(ScriptedGateway(Service())) as url:
        transport = HttpTransport(url)
        with pytest.raises(PinMismatch):
            await bootstrap(tmp_path / "new", transport, pin=machine.service.pin)
        await transport.close()
