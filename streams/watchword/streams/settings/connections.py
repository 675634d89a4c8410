"""Settings of what a process talks to: PostgreSQL, Kafka, the signer, its own key files."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from watchword.streams.kafka_clients import KafkaConnection, SaslMechanism, SecurityProtocol
from watchword.streams.settings.section import Port, Section, Split


def _postgres_url(value: SecretStr | None) -> SecretStr | None:
    if value is not None and not value.get_secret_value().startswith(
        ("postgres://", "postgresql://")
    ):
        message = "must begin with postgres:// or postgresql://"
        raise ValueError(message)
    return value


class DatabaseSettings(Section):
    """Where PostgreSQL is. The gateway and the agent have no use for it."""

    url: Annotated[SecretStr | None, AfterValidator(_postgres_url)] = None
    """`postgres://user@host/database`; `DATABASE_URL` for short. Without it libpq's own variables
    (`PGHOST`, `PGSERVICE` …) say where. A password stands in `PGPASSFILE`, in `url_file` or in the
    variable, never in the configuration file."""

    url_file: Path | None = None
    """A file that holds the URL, for a URL with a password. Also the credential `database.url`."""


class KafkaSettings(Section):
    """The brokers. Names are librdkafka's and the Java client's, with dots (quoted) or underscores."""

    bootstrap_servers: Annotated[str, Field(pattern=r"^[^\s,:]+:\d+(,[^\s,:]+:\d+)*$")] | None = (
        None
    )
    """`host:port`, several with commas between; `KAFKA_BOOTSTRAP_SERVERS` for short. Required,
    because a default would be somebody else's."""

    client_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "watchword"
    """How the brokers' logs and quotas name this client."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    """`SSL` or `SASL_SSL` outside a trusted network."""

    sasl_mechanism: SaslMechanism = "SCRAM-SHA-512"
    """How to log in under `SASL_…`."""

    sasl_username: str | None = None
    """Required under `SASL_…`."""

    sasl_password: SecretStr | None = None
    """Only by the variable or the credential `kafka.sasl_password`, never in the configuration file."""

    sasl_password_file: Path | None = None
    """A file that holds the password; a final line break is cut."""

    ssl_ca_location: Path | None = None
    """PEM of the CAs that the brokers' certificates chain to; the system's if not set."""

    ssl_certificate_location: Path | None = None
    """PEM of a client certificate, for mutual TLS."""

    ssl_key_location: Path | None = None
    """PEM of its key, without a passphrase, mode 0600."""

    def connection(self) -> KafkaConnection:
        """Return what clients are opened with; `bootstrap_servers` has been checked to be there."""
        password = self.sasl_password
        return KafkaConnection(
            bootstrap_servers=self.bootstrap_servers or "",
            client_id=self.client_id,
            security_protocol=self.security_protocol,
            sasl_mechanism=self.sasl_mechanism,
            sasl_username=self.sasl_username,
            sasl_password=None if password is None else password.get_secret_value(),
            ssl_ca_location=self.ssl_ca_location,
            ssl_certificate_location=self.ssl_certificate_location,
            ssl_key_location=self.ssl_key_location,
        )


class KeysSettings(Section):
    """The keys of the deployment: what `watchword keys init` makes."""

    directory: Path = Path("/etc/watchword/keys")
    """Decryption, challenge and response-signing keys, mode 0600; workers read them again when they have changed."""


class SignerSettings(Section):
    """The process that holds the CA key, and where workers find it."""

    socket: Path = Path("/run/watchword/signer.sock")
    """A Unix socket; only the signer's user may replace it."""

    ca_directory: Path | None = None
    """The CA key and certificate, which only the signer reads. `keys.directory` if not set."""

    pkcs11_module: Path | None = None
    """The library of a hardware module that holds the CA key, such as /usr/lib/softhsm/libsofthsm2.so. With it
    `pkcs11_token` and `pkcs11_pin_file` are needed, and the extra `pkcs11`."""

    pkcs11_token: Annotated[str, Field(min_length=1, max_length=32)] | None = None
    """The label of the token in the module."""

    pkcs11_pin_file: Path | None = None
    """A file, mode 0600, that holds the PIN of the token's user; there is no other way to give it."""

    allowed_uids: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Split] = ()
    """User ids whose processes may ask for certificates, besides the signer's own."""

    health_port: Port = 9094
    """Where the signer serves /healthz, /readyz and /metrics."""
