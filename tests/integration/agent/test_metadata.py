"""What an agent asks its cloud, how, and what it makes of the answers; against services that refuse as the real ones do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Machine
from tests.support.cloud_desks import ACCOUNTS, Clouds
from tests.support.contexts import Desk, Facts
from tests.support.metadata import Asked, Aws, Azure, Google, Said, serving
from watchword.handlers.anchors import CloudAccount
from watchword.handlers.attestor import Admission, Evidence
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.prover import CloudIidProver, Provider
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence
from watchword.schemas.ids import TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims
from watchword.streams.agent.metadata import ADDRESS, LinkLocalMetadata

PROVIDERS: tuple[Provider, ...] = ("aws", "gcp", "azure")
CSR = bytes(range(32))


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Clouds:
    return Clouds.at(tmp_path_factory.mktemp("anchors"))


def account_of(provider: Provider) -> CloudAccount:
    return CloudAccount(
        provider=provider,
        account=ACCOUNTS[provider],
        tenant=TenantId("acme"),
        pool="web",
        site=None,
        role="node",
        regions=None,
        approval=False,
        allowed_kinds=(),
        revoked=False,
    )


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_a_cloud_signs_for_a_prover_its_verifier_takes(
    clouds: Clouds, provider: Provider
) -> None:
    """Both halves are one thing: the prover's bytes are judged by the verifier, with anchors of the same cloud."""
    account = account_of(provider)
    desk = Desk("cloud-iid", facts=Facts(accounts={(provider, account.account): account}))
    async with serving(clouds.service(provider)) as service:
        prover = CloudIidProver(provider, LinkLocalMetadata(service.address))
        payload = await prover.evidence(desk.csr.sha256, "node")
    admission = await CloudIidAttestor(clouds.anchors()).verify(
        Evidence(UnverifiedPayload(payload), Claims()), desk.context()
    )

    assert isinstance(admission, Admission)
    assert (admission.tenant, admission.pool, admission.role) == ("acme", "web", "node")
    assert (
        f"{provider}/{account.account}/"
        in {s.kind: s.value for s in admission.subjects}["cloud-instance"]
    )


async def test_aws_is_asked_for_a_session_first(clouds: Clouds) -> None:
    """IMDSv1 answers everybody who can make the machine send a GET, such as a proxy that runs on it."""
    async with serving(clouds.service("aws")) as service:
        await CloudIidProver("aws", LinkLocalMetadata(service.address)).evidence(CSR, "node")
    first, second = service.asked
    assert (first.method, first.path) == ("PUT", "/latest/api/token")
    assert first.headers["x-aws-ec2-metadata-token-ttl-seconds"] == "60"
    assert second.path == "/latest/dynamic/instance-identity/rsa2048"


async def test_the_csr_is_in_what_google_and_azure_are_asked(clouds: Clouds) -> None:
    """A token for another key is worth nothing then."""
    async with serving(clouds.service("gcp")) as service:
        await CloudIidProver("gcp", LinkLocalMetadata(service.address), "a b&c").evidence(
            CSR, "node"
        )
    (asked,) = service.asked
    assert asked.query == {"audience": f"a b&c/{CSR.hex()}", "format": "full"}
    async with serving(clouds.service("azure")) as service:
        await CloudIidProver("azure", LinkLocalMetadata(service.address)).evidence(CSR, "node")
    (asked,) = service.asked
    assert asked.query["nonce"] == str(int.from_bytes(CSR) % 10**10).zfill(10)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_proxy_is_asked(
    clouds: Clouds, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs the proxy would have the machine's identity, and clouds refuse what came through one."""
    async with (
        serving(lambda _: Said(502)) as proxy,
        serving(clouds.service(provider)) as service,
    ):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.address)
        await CloudIidProver(provider, LinkLocalMetadata(service.address)).evidence(CSR, "node")
    assert proxy.asked == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_redirect_is_followed(provider: Provider) -> None:
    """Or the service on the link could send the agent, with its session, anywhere."""
    async with serving(lambda _: Said(200, b"x")) as elsewhere:
        moved = Said(307, headers={"Location": f"{elsewhere.address}/latest/api/token"})
        async with serving(lambda _: moved) as service:
            prover = CloudIidProver(provider, LinkLocalMetadata(service.address))
            with pytest.raises(NoEvidence, match="answers 307"):
                await prover.evidence(CSR, "node")
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    "address",
    ["http://203.0.113.7", "http://metadata.google.internal", "http://10.0.0.1:80", "http://", "x"],
)
def test_an_address_beyond_the_link_is_refused(address: str) -> None:
    """No name is looked up and no router is passed on the way to an identity."""
    with pytest.raises(BadArgument):
        LinkLocalMetadata(address)
    LinkLocalMetadata(ADDRESS)


async def test_a_hop_too_far_is_told(clouds: Clouds) -> None:
    """In a container AWS's answer never arrives, and nobody guesses why."""
    async with serving(Aws(clouds.aws, hops=2)) as service:
        prover = CloudIidProver("aws", LinkLocalMetadata(service.address, within_s=0.2))
        with pytest.raises(NoEvidence, match="hop limit"):
            await prover.evidence(CSR, "node")
    async with serving(Aws(clouds.aws, hops=2, hop_limit=2)) as service:
        await CloudIidProver("aws", LinkLocalMetadata(service.address)).evidence(CSR, "node")


async def test_a_session_that_is_over_is_no_evidence(clouds: Clouds) -> None:
    """The next round begins with a new one."""
    aws = Aws(clouds.aws)

    def forgetful(asked: Asked) -> Said:
        said = aws(asked)
        aws.sessions.clear()
        return said

    async with serving(forgetful) as service:
        with pytest.raises(NoEvidence, match="answers 401"):
            await CloudIidProver("aws", LinkLocalMetadata(service.address)).evidence(CSR, "node")


def always(status: int, body: bytes = b"", **headers: str) -> Callable[[Asked], Said]:
    return lambda _: Said(status, body, headers)


STRANGE: dict[str, tuple[Provider, Callable[[Asked], Said]]] = {
    "switched off": ("aws", always(403)),
    "a session of two lines": ("aws", always(200, b"a\r\nX-Other: b")),
    "an endless answer": ("aws", always(200, b"A" * 70_000)),
    "no base64": ("aws", lambda a: Said(200, b"session" if a.method == "PUT" else b"!!")),
    "nothing": ("aws", lambda a: Said(200, b"session" if a.method == "PUT" else b"")),
    "no account": ("gcp", always(404, b"secret words of a stranger")),
    "a captive portal": ("gcp", always(200, b"a.b.c")),
    "a page": ("gcp", always(200, b"<html>", **{"Metadata-Flavor": "Google"})),
    "no JSON": ("azure", always(200, b"<html>")),
    "deep JSON": ("azure", always(200, b"[" * 60_000)),
    "another encoding": ("azure", always(200, b'{"encoding":"pem","signature":"AAAA"}')),
    "no signature": ("azure", always(200, b'{"encoding":"pkcs7","signature":null}')),
    "busy": ("azure", always(429)),
}


@pytest.mark.parametrize("name", STRANGE)
async def test_what_is_no_identity_is_a_local_matter(name: str) -> None:
    """Nothing of it is sent, and nothing of its text is repeated: anybody on the link may have written it."""
    provider, answer = STRANGE[name]
    async with serving(answer) as service:
        with pytest.raises(NoEvidence) as caught:
            await CloudIidProver(provider, LinkLocalMetadata(service.address)).evidence(CSR, "node")
    assert "stranger" not in str(caught.value)


async def test_a_cloud_answers_no_challenge() -> None:
    """A challenge that came all the same ends the round, not the agent."""
    with pytest.raises(NoEvidence):
        await CloudIidProver("aws", LinkLocalMetadata()).answer(b"c", CSR, "node")


@pytest.mark.parametrize(
    ("service", "without"),
    [
        (Aws, {"method": "GET", "path": "/latest/api/token"}),
        (Aws, {"method": "PUT", "path": "/latest/api/token"}),
        (Aws, {"path": "/latest/dynamic/instance-identity/rsa2048"}),
        (Google, {"path": "/computeMetadata/v1/instance/service-accounts/default/identity"}),
        (Azure, {"path": "/metadata/attested/document", "query": {"api-version": "2020-09-01"}}),
        (Azure, {"path": "/metadata/attested/document", "headers": {"metadata": "true"}}),
    ],
)
def test_the_stand_ins_refuse_what_the_real_ones_refuse(
    clouds: Clouds, service: type[Aws | Google | Azure], without: dict[str, Any]
) -> None:
    """Without the header, the method or the version nobody gets an identity, or the tests above show nothing."""
    provider: Provider = {Aws: "aws", Google: "gcp", Azure: "azure"}[service]  # type: ignore[assignment] # as they are called
    asked = Asked(**{"method": "GET", "query": {}, "headers": {}, **without})
    assert clouds.service(provider)(asked).status in {400, 401, 403, 405}


@pytest.mark.case("B27")
async def test_the_agent_waits_until_its_cloud_answers(clouds: Clouds, tmp_path: Path) -> None:
    """A busy metadata service, or one that starts after us, costs a wait and no request."""
    machine = Machine(tmp_path / "state")
    async with serving(Azure(clouds.azure, busy=3)) as service:
        machine.prover = CloudIidProver("azure", LinkLocalMetadata(service.address))
        await machine.join(machine.service.joined)
        assert len(service.asked) == 4
    (sent,) = machine.wire.sent
    _, _, payload, _ = machine.service.open(sent)
    assert CloudEvidence.decode(payload).provider == "azure"
    told = [step for step in machine.progress if step.step == "no-evidence"]
    assert [step.why for step in told] == [
        "the metadata service answers 410",
        "the metadata service answers 429",
        "the metadata service answers 410",
    ]
