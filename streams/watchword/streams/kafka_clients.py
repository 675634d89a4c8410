"""How to reach Kafka: the security of every client that we open, made in one place."""

import ssl
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from watchword.handlers.errors import ConfigRefused

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

BATCH_BYTES = 128 * 1024
"""Of a producer that many records may wait for, as `max_batch_size`: well below what our topics take as one message, which
holds for whole batches; a record that is larger makes a batch of its own. aiokafka wakes all who wait for a place
in a batch whenever one leaves: with its 16 KB, 2,000 requests that one slow moment held up at a gateway took 3.5 times as
long, and as much more of the processor (3 KB each, on 12 partitions)."""


@dataclass(frozen=True)
class KafkaConnection:
    """The brokers and how to log in to them.

    Fields are named for the properties of librdkafka and the Java client (`ssl.ca.location` is
    `ssl_ca_location`). Certificates and keys are PEM files. The password never shows in `repr`.
    """

    bootstrap_servers: str
    client_id: str = "watchword"
    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca_location: Path | None = None
    ssl_certificate_location: Path | None = None
    ssl_key_location: Path | None = None

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments for an aiokafka producer, consumer or admin client.

        Raises:
            ConfigRefused: a certificate or key file cannot be used.
        """
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.endswith("SSL"):
            options["ssl_context"] = self.ssl_context
        if self.security_protocol.startswith("SASL"):
            options |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": self.sasl_password,
            }
        return options

    @cached_property
    def ssl_context(self) -> ssl.SSLContext:
        """The one context that all clients of this connection share: TLS 1.2 or later, names checked."""
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_location)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.ssl_certificate_location is not None:
                context.load_cert_chain(self.ssl_certificate_location, self.ssl_key_location)
        except (OSError, ssl.SSLError) as error:
            raise ConfigRefused([f"kafka ssl: {type(error).__name__}: {error}"]) from error
        return context
