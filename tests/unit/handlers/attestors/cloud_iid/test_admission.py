"""What is made of a proven instance: whose it is, whether it may join, and that it joins once."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from tests.support.cloud_desks import ACCOUNTS, Clouds, key_of
from tests.support.clouds import Cms
from tests.support.contexts import Desk, run
from tests.support.metadata import Aws, Azure, Google
from watchword.handlers.anchors import CloudAccount
from watchword.handlers.attestor import (
    Admission,
    Approval,
    Deferral,
    Evidence,
    NodeId,
    Role,
    Subject,
)
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.binding import bound_audience, nonce_for
from watchword.handlers.attestors.cloud_iid.config import AzureConfig, Config, GcpConfig
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.prover import Provider
from watchword.handlers.attestors.cloud_iid.reasons import REASONS
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.errors import Refused
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.ids import TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

PROVIDERS: tuple[Provider, ...] = ("aws", "gcp", "azure")
INSTANCES: dict[Provider, str] = {
    "aws": "i-0123456789abcdef0",
    "gcp": "3015378661047007286",
    "azure": "b1310a36-d400-46f6-82cb-6217df846586",
}
REGIONS: dict[Provider, str | None] = {"aws": "eu-west-1", "gcp": "europe-west10", "azure": None}


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Clouds:
    return Clouds.at(tmp_path_factory.mktemp("anchors"))


class Instance:
    """An instance of one cloud, whose account an operator has named, and the desk that it is judged at."""

    def __init__(self, clouds: Clouds, provider: Provider, role: Role = "node") -> None:
        """Have an account that lets any region's instances join as nodes."""
        self.provider: Provider = provider
        self.clouds = clouds
        self.anchors: AnchorFolder = clouds.anchors()
        self.config: Config | None = None
        self.desk = Desk("cloud-iid", "".join(role))  # type: ignore[arg-type]
        self.audience = bound_audience("watchword", self.desk.csr.sha256)
        self.nonce: str | None = None
        self.uses: list[tuple[bytes, Any]] = []
        self.key = (provider, ACCOUNTS[provider])
        self.desk.facts.accounts[self.key] = CloudAccount(
            provider=provider,
            account=ACCOUNTS[provider],
            tenant=TenantId("acme"),
            pool="web",
            site="berlin",
            role="node",
            regions=None,
            approval=False,
            allowed_kinds=("diag.*",),
            revoked=False,
        )
        name = f"{provider}/{ACCOUNTS[provider]}"
        parts = (provider, ACCOUNTS[provider], INSTANCES[provider])
        self.bind = sha256(
            b"cloud-iid" + length_prefixed(*(part.encode() for part in parts))
        ).digest()
        self.grant = Admission(
            tenant=TenantId("acme"),
            role="node",
            pool="web",
            site="berlin",
            bind=self.bind,
            allowed_kinds=("diag.*",),
            subjects=(
                Subject("cloud-instance", f"{name}/{INSTANCES[provider]}"),
                Subject("cloud-account", name),
            ),
        )

    def account(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        """Have the operator's row changed."""
        accounts = self.desk.facts.accounts
        accounts[self.key] = replace(accounts[self.key], **changes)

    def evidence(self) -> bytes:
        """Return what the instance's prover would show."""
        if self.provider == "aws":
            made = Cms(Aws(self.clouds.aws).document(), self.clouds.aws).make()
            return CloudEvidence("aws", "rsa2048", b"", made).encode()
        if self.provider == "gcp":
            token = Google(key_of("k1")).token(self.audience, "full")
            return CloudEvidence("gcp", "token", b"", token).encode()
        content = Azure(self.clouds.azure).document(self.nonce)
        made = Cms(
            content, self.clouds.azure, attributes=False, certificates=(self.clouds.azure.der,)
        ).make()
        return CloudEvidence("azure", "attested", b"", made).encode()

    def verdict(self, payload: bytes | None = None) -> Admission | Deferral:
        shown = Evidence(UnverifiedPayload(payload or self.evidence()), Claims())
        context = self.desk.context()
        found = run(CloudIidAttestor(self.anchors, self.config).verify(shown, context))
        self.uses = context.staged.uses
        assert not context.staged.spends
        return found

    def refusal(self, payload: bytes | None = None) -> tuple[str, str | None]:
        """Return the reason, and the tenant that is told."""
        with pytest.raises(Refused) as caught:
            self.verdict(payload)
        assert caught.value.attestor == "cloud-iid"
        return caught.value.reason, caught.value.tenant_id


@pytest.fixture(params=PROVIDERS)
def one(clouds: Clouds, request: pytest.FixtureRequest) -> Instance:
    return Instance(clouds, request.param)


def test_instance_is_admitted_to_its_accounts_place_and_used_up_for_ever(one: Instance) -> None:
    """An instance's document can be asked for again and again: one instance is one node."""
    assert one.verdict() == one.grant
    assert one.uses == [(one.bind, None)]


def test_bound_instance_comes_back_by_its_binding_and_is_not_used_up_again(one: Instance) -> None:
    """An operator's grant lets its node come back; a second use would refuse what was granted."""
    one.desk.facts.bound[one.bind] = NodeId(UUID(int=50))
    assert one.verdict() == one.grant
    assert one.uses == []


def test_operator_is_asked_about_the_instance_and_it_is_used_up_only_then(one: Instance) -> None:
    """What they see was signed by the cloud; a machine that nobody agrees to costs its instance nothing."""
    one.account(approval=True)
    facts = {
        "provider": one.provider,
        "account": ACCOUNTS[one.provider],
        "instance": INSTANCES[one.provider],
    }
    region = REGIONS[one.provider]
    if region is not None:
        facts["region"] = region
    assert one.verdict() == Approval(one.bind, one.grant, facts)
    assert one.uses == []
    one.desk.facts.agrees = True
    assert one.verdict() == one.grant
    assert one.uses == [(one.bind, None)]


def test_account_that_nobody_named_or_that_was_revoked_lets_nobody_in(one: Instance) -> None:
    """Everybody can have an account of a cloud; who is whose, an operator says."""
    one.account(revoked=True, regions=(), role="site", approval=True)
    assert one.refusal() == ("account-revoked", "acme")
    one.desk.facts.accounts.clear()
    assert one.refusal() == ("account-unknown", None)


def test_regions_that_are_listed_are_the_only_ones(one: Instance) -> None:
    """Where a cloud signs no region, no list can be met."""
    region = REGIONS[one.provider]
    for regions in ((), ("us-east-1",), ("a", "z")):
        one.account(regions=regions, role="site")
        assert one.refusal() == ("region", "acme")
    one.account(regions=("us-east-1", "eu-west-1", "europe-west10"), role="node")
    if region is None:
        assert one.refusal() == ("region", "acme")
    else:
        assert one.verdict() == one.grant


@pytest.mark.parametrize("given", ["node", "site"])
@pytest.mark.parametrize("asked", ["node", "site"])
def test_instance_joins_in_its_accounts_role_alone(
    clouds: Clouds, given: Role, asked: Role
) -> None:
    """A fleet of nodes makes no site, nor the other way round."""
    one = Instance(clouds, "gcp", asked)
    one.account(role=given)
    if given == asked:
        assert one.verdict() == replace(one.grant, role=given)
    else:
        assert one.refusal() == ("wrong-role", "acme")


def test_evidence_that_proves_nothing_authenticates_no_tenant(one: Instance) -> None:
    """Junk is told apart from what a cloud has signed, and what was signed ends."""
    assert one.refusal(b"junk") == ("malformed", None)
    payload = one.evidence()
    one.desk.now += timedelta(days=2)
    assert one.refusal(payload) == ("stale", None)


def test_googles_token_is_for_this_service_and_this_key(clouds: Clouds) -> None:
    """A token that was asked for by another service, or stolen for another key, names the same instance."""
    one = Instance(clouds, "gcp")
    one.audience = bound_audience("watchword", bytes(32))
    assert one.refusal() == ("audience", None)
    one.audience = bound_audience("bakery", one.desk.csr.sha256)
    assert one.refusal() == ("audience", None)
    one.config = Config(gcp=GcpConfig(audience="bakery"))
    assert one.verdict() == one.grant


def test_azures_nonce_counts_where_an_operator_says_so(clouds: Clouds) -> None:
    """It is the only word about the key that Azure signs, and its service may give an older one."""
    one = Instance(clouds, "azure")
    one.config = Config(azure=AzureConfig(nonce=True))
    assert one.refusal() == ("nonce", None)
    one.nonce = nonce_for(one.desk.csr.sha256)
    assert one.verdict() == one.grant


def test_anchor_that_verified_is_known_to_be_in_use(one: Instance) -> None:
    """Before an operator takes an anchor away, they ask who still needs it."""
    assert {status.last_used for status in one.anchors.status(one.desk.now)} == {None}
    one.verdict()
    used = {status.last_used for status in one.anchors.status(one.desk.now)}
    assert used == {None, one.desk.now}


def test_what_is_published_of_the_attestor_is_what_it_was_released_with(clouds: Clouds) -> None:
    """Its id stands in tables and refusals; ramdisks have no cloud that could vouch for them."""
    attestor = CloudIidAttestor(clouds.anchors())
    assert (attestor.id, attestor.version) == ("cloud-iid", "1")
    assert attestor.roles == {"node", "site"}
    assert attestor.reasons is REASONS
