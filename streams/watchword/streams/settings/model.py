"""All settings of all processes, checked and frozen."""

from collections.abc import Iterator

from watchword.streams.settings.connections import (
    DatabaseSettings,
    KafkaSettings,
    KeysSettings,
    SignerSettings,
)
from watchword.streams.settings.console import ConsoleSettings
from watchword.streams.settings.policies import (
    AccessSettings,
    AttestorsSettings,
    DeploymentSettings,
    RefusalsSettings,
    TopicsSettings,
)
from watchword.streams.settings.processes import (
    GatewaySettings,
    HealthSettings,
    KeeperSettings,
    LogSettings,
    RelaySettings,
    WorkerSettings,
)
from watchword.streams.settings.section import Section
from watchword.streams.settings.tracing import TracingSettings


class Settings(Section):
    """What an operator can turn. Each field is a section of the file."""

    deployment: DeploymentSettings = DeploymentSettings()
    database: DatabaseSettings = DatabaseSettings()
    kafka: KafkaSettings = KafkaSettings()
    keys: KeysSettings = KeysSettings()
    signer: SignerSettings = SignerSettings()
    worker: WorkerSettings = WorkerSettings()
    relay: RelaySettings = RelaySettings()
    keeper: KeeperSettings = KeeperSettings()
    gateway: GatewaySettings = GatewaySettings()
    console: ConsoleSettings = ConsoleSettings()
    refusals: RefusalsSettings = RefusalsSettings()
    attestors: AttestorsSettings = AttestorsSettings()
    topics: TopicsSettings = TopicsSettings()
    access: AccessSettings = AccessSettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()


def rules(settings: Settings) -> Iterator[str]:
    """Yield what is wrong between fields."""
    kafka = settings.kafka
    if kafka.security_protocol.startswith("SASL"):
        if kafka.sasl_username is None:
            yield "kafka.sasl_username: required under SASL"
        if kafka.sasl_password is None:
            yield "kafka.sasl_password: required under SASL; name a file in kafka.sasl_password_file"
    if (kafka.ssl_certificate_location is None) != (kafka.ssl_key_location is None):
        yield "kafka.ssl_certificate_location and kafka.ssl_key_location: only together"
    gateway = settings.gateway
    if (gateway.tls_certificate_file is None) != (gateway.tls_key_file is None):
        yield "gateway.tls_certificate_file and gateway.tls_key_file: only together"
    signer = settings.signer
    module = (signer.pkcs11_module, signer.pkcs11_token, signer.pkcs11_pin_file)
    if any(module) and not all(module):
        yield "signer.pkcs11_module, signer.pkcs11_token and signer.pkcs11_pin_file: only together"
    console = settings.console
    if (console.tls_certificate_file is None) != (console.tls_key_file is None):
        yield "console.tls_certificate_file and console.tls_key_file: only together"
    if console.client_ca_file is not None and console.tls_certificate_file is None:
        yield "console.client_ca_file: needs console.tls_certificate_file, TLS has to end in the console"
    if console.oidc_issuer is not None and None in {
        console.oidc_client_id,
        console.oidc_client_secret_file,
        console.public_url,
    }:
        yield "console.oidc_issuer: needs console.oidc_client_id, oidc_client_secret_file and public_url"
    if (console.webhook_url is None) != (console.webhook_key_file is None):
        yield "console.webhook_url and console.webhook_key_file: only together"
    deployment = settings.deployment
    if deployment.waiting_per_site > deployment.waiting_per_tenant:
        yield "deployment.waiting_per_site: greater than deployment.waiting_per_tenant, it could never be reached"
    topics = settings.topics
    if topics.min_insync_replicas > topics.replication_factor:
        yield "topics.min_insync_replicas: greater than topics.replication_factor, nothing could be written"
    refusals = settings.refusals
    if refusals.attestor_limit < refusals.limit:
        yield "refusals.attestor_limit: less than refusals.limit, which could then never be reached"
    for tenant in sorted(settings.access.tenant_siems.keys() - set(refusals.tenant_topics)):
        yield f"access.tenant_siems.{tenant}: the tenant is not in refusals.tenant_topics"
