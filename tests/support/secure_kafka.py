"""An embedded broker as a deployment would run one: an authorizer, SASL/SCRAM over TLS, and users."""

import hashlib
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from watchword.streams.dev.kafka import EmbeddedKafka, KafkaOptions
from watchword.streams.kafka_clients import KafkaConnection

_ITERATIONS = 4096
_SCRAM_SHA_512 = 2
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def secure_broker(folder: Path, *, plain: Mapping[str, str] | None = None) -> EmbeddedKafka:
    """Return a broker, not yet started: clients need TLS, a password and leave; only its own plain listener does not.

    `plain` are users with passwords who log in by PLAIN, for clients that cannot do SCRAM.
    """
    users = "".join(f' user_{user}="{password}"' for user, password in (plain or {}).items())
    certificate, key = _certificate(folder)
    # The PKCS #8 key and the chain in one file, as Kafka wants a PEM store.
    store = folder / "broker.pem"
    store.touch(mode=0o600)
    store.write_text(key + certificate)
    return EmbeddedKafka(
        folder / "data",
        KafkaOptions(
            extra_properties={
                "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
                "listener.name.client.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
                "listener.name.client.plain.sasl.jaas.config": f"{_PLAIN} required{users};",
                "listener.name.client.ssl.keystore.type": "PEM",
                "listener.name.client.ssl.keystore.location": str(store),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "false",
                # Whoever comes over the broker's own listener on this machine: the broker, and we.
                "super.users": "User:ANONYMOUS",
            }
        ),
    )


class Login:
    """Logs in to a secure broker."""

    def __init__(self, broker: EmbeddedKafka, folder: Path) -> None:
        """Take the broker of this folder."""
        self._broker, self._ca = broker, folder / "ca.pem"
        self._passwords: dict[str, str] = {}

    async def create(self, *users: str) -> None:
        """Make users with passwords that only this object knows."""
        self._passwords |= {user: secrets.token_urlsafe(16) for user in users}
        admin = AIOKafkaAdminClient(bootstrap_servers=self._broker.internal_bootstrap_servers)
        await admin.start()
        try:
            answer: Any = await admin._send_to_controller(_AlterScram(self._passwords))
        finally:
            await admin.close()
        assert not [code for _, code, *_ in answer.results if code]

    def connection(self, user: str) -> KafkaConnection:
        """Return how a user reaches the broker."""
        return KafkaConnection(
            self._broker.bootstrap_servers,
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username=user,
            sasl_password=self._passwords[user],
            ssl_ca_location=self._ca,
        )

    def settings(self, user: str) -> dict[str, str]:
        """Return what librdkafka calls these."""
        found = self.connection(user)
        return {
            "bootstrap.servers": found.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self._passwords[user],
            "ssl.ca.location": str(self._ca),
        }


def _certificate(folder: Path) -> tuple[str, str]:
    """Return certificate and key of 127.0.0.1 in PEM; the certificate is its own CA, in `ca.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    (folder / "ca.pem").write_text(pem)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    return pem, private


class _AlterScramResponse(Response):
    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString("utf-8")),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _AlterScramRequestV0(RequestStruct):
    API_KEY = 51
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _AlterScramResponse
    SCHEMA = Schema(
        (
            "deletions",
            CompactArray(
                ("name", CompactString("utf-8")), ("mechanism", Int8), ("tags", TaggedFields)
            ),
        ),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _AlterScram(Request[_AlterScramRequestV0]):
    """AlterUserScramCredentials (51), which aiokafka does not have. RFC 5802: the server never sees the password."""

    API_KEY = 51

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def build(self, request_struct_class: type[_AlterScramRequestV0]) -> _AlterScramRequestV0:
        upsertions: list[tuple[object, ...]] = []
        for user, password in self._passwords.items():
            salt = secrets.token_bytes(16)
            salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
            upsertions.append((user, _SCRAM_SHA_512, _ITERATIONS, salt, salted, {}))
        return request_struct_class([], upsertions, {})
