"""TLS at a gateway: certificates change while it serves, and no handshake holds a place for ever."""

import asyncio
import datetime as dt
import ssl
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.gateway import Served, timed
from tests.support.raw_http import NOBODY_KNOWS, PATIENCE_S, connected, gateway
from watchword.handlers.errors import ConfigRefused
from watchword.streams.gateway import GatewayOptions, TlsFiles, server
from watchword.streams.gateway.server import tls_context


def certificate(folder: Path, name: str) -> TlsFiles:
    """Write a certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    files = TlsFiles(folder / "tls.crt", folder / "tls.key")
    files.certificate.write_bytes(made.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


async def shown(served: Served) -> str:
    """Return the subject of the certificate that the gateway shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port, ssl=context)
    try:
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
        await writer.wait_closed()
    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


async def test_tls_is_served_and_a_new_certificate_needs_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates live for weeks, gateways for months."""
    monkeypatch.setattr(server, "_LOOK_AT_FILES_S", 0.02)
    files = certificate(tmp_path, "first")
    async with gateway(lambda options: replace(options, tls=files)) as served:
        trusting = ssl.create_default_context(cafile=str(files.certificate))
        base = f"https://127.0.0.1:{served.gateway.port}"
        async with httpx.AsyncClient(base_url=base, verify=trusting, trust_env=False) as client:
            assert (await client.get(NOBODY_KNOWS)).status_code == 202
        assert await shown(served) == "CN=first"

        files.key.write_bytes(b"half written")
        certificate(tmp_path, "second")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await shown(served) == "CN=second":
                    break
                await asyncio.sleep(0.02)


async def test_a_tls_handshake_that_does_not_come_is_cut_off(tmp_path: Path) -> None:
    """Before the handshake nothing else counts the connection."""
    files = certificate(tmp_path, "first")

    def adjust(options: GatewayOptions) -> GatewayOptions:
        return replace(timed(tls_handshake_s=0.3)(options), tls=files)

    async with gateway(adjust) as served, connected(served) as silent:
        assert await silent.is_closed()


def test_tls_files_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    files = certificate(tmp_path, "first")
    files.key.write_bytes(b"junk")

    with pytest.raises(ConfigRefused, match="gateway TLS"):
        tls_context(files)
