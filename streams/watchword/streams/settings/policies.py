"""Settings of what is decided: the deployment, limits of attestors, the bound on refusals, topics."""

from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from watchword.schemas.commands import Kind as CommandKind
from watchword.schemas.ids import RESERVED_ATTESTOR_IDS
from watchword.streams.settings.cloud import CloudIidSettings
from watchword.streams.settings.limits import AttestorLimits
from watchword.streams.settings.section import Label, Names, Pairs, Section, Split, written


class DeploymentSettings(Section):
    """What all processes of one deployment agree on."""

    cluster: Label = "watchword"
    """Stands in the source of every event: `/watchword/<cluster>/…`."""

    trust_domain: (
        Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9.-]{0,200}[a-z0-9])?$")] | None
    ) = None
    """The SPIFFE trust domain of node certificates, for `keys init`; it cannot be changed later without
    new keys. Where it is set, a worker refuses keys of another."""

    certificate_lifetime_s: Annotated[int, Field(ge=600, le=366 * 86_400)] = 7 * 86_400
    """How long a node certificate is valid. A stolen key is worth something for this long."""

    renew_fraction: Annotated[float, Field(ge=0.1, le=0.9)] = 0.66
    """After which part of that life an agent renews."""

    verify_timeout_s: Annotated[float, Field(ge=0.1, le=30.0)] = 2.0
    """How long an attestor may take to judge one machine's evidence."""

    approval_retry_after_s: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long a machine that waits for an approval waits between two tries. A constant of the
    deployment, so that it says nothing about the machine."""

    on_key_conflict: Literal["evict", "alert-only"] = "evict"
    """What happens when two different keys are renewed from one certificate, which means that its key was
    copied: the node is evicted and its certificates are revoked, or there is only `node.key.conflict`."""

    kinds: Annotated[tuple[CommandKind, ...], Split] = ()
    """Kinds of commands that this deployment has beside the built-in ones (`watchword kinds list`), such as
    `backup.run`. Workers and whoever sends commands need the same list: what a worker does not know it does not
    hand out."""

    approval_ttl_s: Annotated[int, Field(ge=60, le=30 * 86_400)] = 86_400
    """How long a join waits for an operator, and how long their word is good: from the first try on. Then the
    machine waits anew."""

    waiting_per_tenant: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """How many joins may wait for an operator in one tenant; further ones are refused as
    `join:too-many-waiting`. Counted exactly, whichever workers they come to."""

    waiting_per_site: Annotated[int, Field(ge=1, le=100_000)] = 200
    """How many of them may wait at one site, so that one site's noise leaves room for the others."""


class RefusalsSettings(Section):
    """The bound on published details of refusals. Every refusal is counted, whatever stands here."""

    limit: Annotated[int, Field(ge=1, le=10_000)] = 60
    """Details published in any `window_s` for one tenant stream, attestor and reason."""

    window_s: Annotated[int, Field(ge=1, le=3600)] = 60
    """The sliding window of the limits."""

    attestor_limit: Annotated[int, Field(ge=1, le=10_000)] = 300
    """Details in a window for all reasons of one attestor together. The first five of each reason are
    outside it, so that noise of one reason hides no other."""

    alert_repeat_s: Annotated[int, Field(ge=10, le=86_400)] = 300
    """How long an alert of one kind, tenant and attestor stays quiet after it was told; what happens meanwhile
    is in the next one."""

    alert_credentials: Annotated[int, Field(ge=2, le=10_000)] = 5
    """How many different tokens, images or the like one claimed hardware key or one address may try within
    `alert_window_s` before that is an alert."""

    alert_window_s: Annotated[int, Field(ge=60, le=86_400)] = 600
    """The window of `alert_credentials`."""

    tenant_topics: Annotated[tuple[Label, ...], Split] = ()
    """Tenants whose stream is also published on a topic of their own, `security.join.refused.tenant.<tenant>`: Kafka
    authorises topics, so that is how a tenant's SIEM reads its own and nobody else's. Run `topics apply` before
    the relay: a topic that is missing holds refusals back."""


class TopicsSettings(Section):
    """How `watchword topics apply` makes topics."""

    replication_factor: Annotated[int, Field(ge=1, le=15)] = 3
    """Copies of each partition."""

    min_insync_replicas: Annotated[int, Field(ge=1, le=15)] = 2
    """Copies that must have a record before it counts as written (`acks=all`)."""

    partitions: Annotated[dict[str, Annotated[int, Field(ge=1, le=10_000)]], Pairs] = Field(
        default_factory=dict[str, int]
    )
    """Another number of partitions than the release's, by topic name. Partitions are never taken away."""


class AccessSettings(Section):
    """Who may do what in Kafka.

    `watchword topics apply` makes these rules where somebody is named here, and takes none away. Principals are the
    authorizer's own, such as `User:gateway`.
    """

    agents: Names = ()
    """Machines that speak to Kafka themselves, without a gateway."""

    gateways: Names = ()
    """What `watchword gateway` logs in as."""

    workers: Names = ()
    """What `watchword worker` logs in as."""

    relays: Names = ()
    """What `watchword relay` logs in as."""

    consoles: Names = ()
    """What `watchword console` logs in as, if it is to show how far the workers are behind."""

    siems: Names = ()
    """Who reads the refusals of all tenants, in consumer groups whose names begin with `<siem_group>-`."""

    tenant_siems: Annotated[dict[Label, str], Pairs] = Field(default_factory=dict[str, str])
    """By tenant of `refusals.tenant_topics`: who reads that tenant's own topic, in groups whose names begin with
    `<siem_group>.<tenant>.`"""

    siem_group: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "siem"
    """What the names of a SIEM's consumer groups begin with."""

    agent_bytes_per_s: Annotated[int, Field(ge=1024)] | None = None
    """How many bytes a second each of `agents` may write to a broker; no quota if not set."""

    gateway_bytes_per_s: Annotated[int, Field(ge=1024)] | None = None
    """The same for each of `gateways`."""


class X509PopRule(Section):
    """One rule: certificates that chain to these CAs and match every pattern lead here. The first that takes one counts."""

    authorities_file: Path
    """A PEM file of the CAs. Ed25519 CAs cannot be used."""

    match: dict[str, str]
    """Field of the certificate → shell pattern, case sensitive: `commonName`, `organization`, `organizationalUnit`,
    `serialNumber` of the subject; `dns`, `uri`, `email` of the alternative names. All must match; at least one
    must be there, and `{ commonName = "*" }` takes every certificate that has a name."""

    tenant: Label
    """The tenant of its machines."""

    pool: Label
    """Their pool."""

    site: Label | None = None
    """Their site."""

    roles: Annotated[tuple[Literal["node", "site"], ...], Split, Field(min_length=1)] = ("node",)
    """Roles that they may ask for. Never `ramdisk`."""

    kinds: Names = ()
    """Kinds of commands that they may be sent. None are, if this is empty."""

    unsafe_unrestricted_kinds: bool = False
    """Whether they may be sent every kind, whatever `kinds` says."""

    reattest: bool = False
    """Whether the same certificate may come with another machine key, and then re-keys its node. Otherwise
    a certificate is good for one machine key, so that copies of it displace nobody."""


class X509PopSettings(AttestorLimits):
    """`[attestors.x509pop]`: the limits of any attestor, and which certificates admit."""

    own_grace_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 0
    """How long after its end a node's own current certificate still lets it come back; 0 never."""

    rules: tuple[X509PopRule, ...] = ()
    """The tables `[[attestors.x509pop.rules]]`, in the order in which they are tried."""


class TpmWaitingRoom(Section):
    """Where a genuine TPM that nobody has enrolled waits for an operator."""

    tenant: Label
    """The tenant of its machines."""

    pool: Label
    """Their pool; its policy says what they have to show."""

    site: Label | None = None
    """Their site."""

    kinds: Names = ()
    """Kinds of commands that they may be sent. None are, if this is empty."""


class TpmSettings(AttestorLimits):
    """`[attestors.tpm]`: the limits of any attestor, and whose chips are genuine."""

    anchors_folder: Path | None = None
    """A folder of PEM or DER files: the vendors' CAs for endorsement keys. One that cannot be used is logged
    and passed over. Enrolled TPMs need none."""

    waiting_room: TpmWaitingRoom | None = None
    """The table `[attestors.tpm.waiting_room]`. Without it only enrolled TPMs get in."""


class AttestorsSettings(Section):
    """Which attestors a worker has, and `[attestors.<id>]`: what each may answer."""

    enabled: Names = ()
    """What a worker has besides `join-token`, which is always there: `x509pop`, `image`, `discovery`, `tpm`, `cloud-iid`, or
    names of entry points in the group `watchword.attestors`."""

    x509pop: X509PopSettings | None = None
    """The table `[attestors.x509pop]`: limits, and rules on certificates."""

    tpm: TpmSettings | None = None
    """The table `[attestors.tpm]`: limits, the vendors' CAs, and the waiting room."""

    cloud_iid: CloudIidSettings | None = Field(default=None, alias="cloud-iid")
    """The table `[attestors.cloud-iid]`: limits, the clouds' anchors, and how old their word may be."""

    limits: dict[Label, AttestorLimits] = Field(default_factory=dict[str, AttestorLimits])
    """The tables `[attestors.<id>]`. An attestor without one may admit nobody; only `join-token` then
    admits as its tokens say, because operators made them."""

    @model_validator(mode="before")
    @classmethod
    def _tables_are_limits(cls, data: Any) -> Any:  # noqa: ANN401 - what an operator wrote
        """Move each table `[attestors.<id>]` to `limits`."""
        if not isinstance(data, dict):
            return data
        given = cast("dict[str, Any]", data)
        fields = {written(name, field) for name, field in cls.model_fields.items()}
        own = {name: value for name, value in given.items() if name in fields}
        tables = {name: value for name, value in given.items() if name not in own}
        if not tables:
            return own
        limits: dict[str, Any] = own.get("limits", {})
        return own | {"limits": {**limits, **tables}}

    @model_validator(mode="after")
    def _no_reserved_id(self) -> "AttestorsSettings":
        if taken := sorted(RESERVED_ATTESTOR_IDS & self.limits.keys()):
            message = f"reserved for the core: {', '.join(taken)}"
            raise ValueError(message)
        return self
