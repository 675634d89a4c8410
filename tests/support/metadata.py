"""Metadata services of clouds on this machine: each speaks its documented form, and refuses what the real one refuses."""

import asyncio
import json
import socket
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from textwrap import wrap
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.clouds import Certified, Cms


@dataclass(frozen=True)
class Asked:
    """One request. Names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Said:
    """An answer; without a status none is given, and the connection stays open."""

    status: int | None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    hops: int | None = None
    """How many hops the answer's packets may travel."""


@dataclass
class Service:
    """A metadata service."""

    answer: Callable[[Asked], Said]
    asked: list[Asked] = field(default_factory=list[Asked])
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ")
            parts = urlsplit(target)
            asked = Asked(
                method,
                parts.path,
                {name: values[-1] for name, values in parse_qs(parts.query).items()},
                {n.strip().lower(): v.strip() for n, _, v in (h.partition(":") for h in head[1:])},
            )
            self.asked.append(asked)
            said = self.answer(asked)
            if said.status is None:
                await reader.read()  # until the other side gives up
                return
            if said.hops is not None:
                own: socket.socket = writer.get_extra_info("socket")
                own.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, said.hops)
            headers = {"Content-Length": str(len(said.body)), "Connection": "close"}
            lines = [f"{name}: {value}\r\n" for name, value in {**headers, **said.headers}.items()]
            writer.write(f"HTTP/1.1 {said.status} said\r\n{''.join(lines)}\r\n".encode())
            writer.write(said.body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer: Callable[[Asked], Said]) -> AsyncGenerator[Service]:
    """Serve inside the block."""
    service = Service(answer)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()


@dataclass
class Aws:
    """IMDSv2: a session by PUT, whose answer travels `hop_limit` hops; then documents for it.

    The asker is `hops` away, as an agent in a container is two.
    """

    signer: Certified
    account: str = "123456789012"
    instance: str = "i-0123456789abcdef0"
    region: str = "eu-west-1"
    pending: datetime = field(default_factory=lambda: datetime.now(UTC))
    hop_limit: int = 1
    hops: int = 1
    is_enabled: bool = True
    sessions: dict[str, datetime] = field(default_factory=dict[str, datetime])

    def document(self) -> bytes:
        """Return the instance identity document."""
        said = {
            "accountId": self.account,
            "architecture": "x86_64",
            "availabilityZone": f"{self.region}a",
            "instanceId": self.instance,
            "pendingTime": self.pending.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": self.region,
            "version": "2017-09-30",
        }
        return json.dumps(said, indent=2).encode()

    def __call__(self, asked: Asked) -> Said:
        """Answer."""
        if not self.is_enabled:
            return Said(403)
        if asked.path == "/latest/api/token":
            return self._session(asked)
        until = self.sessions.get(asked.headers.get("x-aws-ec2-metadata-token", ""))
        if until is None or until < datetime.now(UTC):
            return Said(401)
        if asked.method != "GET":
            return Said(405)
        if asked.path != "/latest/dynamic/instance-identity/rsa2048":
            return Said(404)
        text = b64encode(Cms(self.document(), self.signer).make()).decode()
        return Said(200, "\n".join(wrap(text, 64)).encode(), {"Content-Type": "text/plain"})

    def _session(self, asked: Asked) -> Said:
        if asked.method != "PUT":
            return Said(405)
        if "x-forwarded-for" in asked.headers:
            return Said(403)
        seconds = asked.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not seconds.isdecimal() or not 1 <= int(seconds) <= 21600:
            return Said(400)
        if self.hops > self.hop_limit:
            return Said(None)
        session = token_urlsafe(42) + "=="
        self.sessions[session] = datetime.now(UTC) + timedelta(seconds=int(seconds))
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": seconds}
        return Said(200, session.encode(), headers, hops=self.hop_limit)


@dataclass
class Google:
    """The metadata server of Compute Engine: identity tokens for those who send its header."""

    key: rsa.RSAPrivateKey
    kid: str = "k1"
    project: str = "acme-prod"
    instance: str = "3015378661047007286"
    zone: str = "europe-west10-b"
    has_account: bool = True
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    """More claims of the instance, which its owner can set."""

    def __call__(self, asked: Asked) -> Said:
        """Answer."""
        own = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
        if asked.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in asked.headers:
            return Said(403, b"Missing Metadata-Flavor:Google header.", own)
        path = "/computeMetadata/v1/instance/service-accounts/default/identity"
        if asked.method != "GET" or asked.path != path or not self.has_account:
            return Said(404, b"not found", own)
        audience = asked.query.get("audience")
        if not audience:
            return Said(400, b"non-empty audience parameter required", own)
        return Said(200, self.token(audience, asked.query.get("format", "standard")), own)

    def token(self, audience: str, form: str) -> bytes:
        """Return a token; only the full form names the instance."""
        now = int(datetime.now(UTC).timestamp())
        claims: dict[str, Any] = {
            "aud": audience,
            "azp": "113366",
            "exp": now + 3600,
            "iat": now,
            "iss": "https://accounts.google.com",
            "sub": "113366",
        }
        if form == "full":
            claims["google"] = {
                "compute_engine": {
                    "instance_creation_timestamp": now - 60,
                    "instance_id": self.instance,
                    "instance_name": "web-1",
                    "project_id": self.project,
                    "project_number": 847250625900,
                    "zone": self.zone,
                    **self.attributes,
                }
            }
        header = {"alg": "RS256", "kid": self.kid, "typ": "JWT"}
        signed = b".".join(_b64url(json.dumps(part).encode()) for part in (header, claims))
        signature = self.key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        return signed + b"." + _b64url(signature)


@dataclass
class Azure:
    """The instance metadata service of Azure: attested documents for those who send its header."""

    signer: Certified
    issuers: tuple[bytes, ...] = ()
    machine: str = "b1310a36-d400-46f6-82cb-6217df846586"
    subscription: str = "8a205152-b25a-417f-a676-80465535a6c9"
    cached_nonce: str | None = None
    """The nonce of a document from the cache, which the service gives whatever it is asked."""
    busy: int = 0
    """How often it is being updated or asked too much first."""

    def __call__(self, asked: Asked) -> Said:
        """Answer."""
        if asked.headers.get("metadata", "").lower() != "true" or (
            "x-forwarded-for" in asked.headers
        ):
            return Said(400, b'{"error":"Bad request. Required metadata header not specified"}')
        if asked.path != "/metadata/attested/document":
            return Said(404)
        if asked.method != "GET":
            return Said(405)
        nonce = asked.query.get("nonce")
        if asked.query.get("api-version") != "2020-09-01" or (
            nonce is not None and (not nonce.isdecimal() or len(nonce) != 10)
        ):
            return Said(400, b'{"error":"Bad request"}')
        if self.busy:
            self.busy -= 1
            return Said(429 if self.busy % 2 else 410)
        document = Cms(
            self.document(self.cached_nonce or nonce),
            self.signer,
            attributes=False,
            certificates=(self.signer.der, *self.issuers),
        ).make()
        said = {"encoding": "pkcs7", "signature": b64encode(document).decode()}
        return Said(200, json.dumps(said).encode(), {"Content-Type": "application/json"})

    def document(self, nonce: str | None) -> bytes:
        """Return what is signed; without a nonce the time stands there."""
        now = datetime.now(UTC)
        form = "%m/%d/%y %H:%M:%S -0000"
        said = {
            "licenseType": "",
            "nonce": nonce or now.strftime("%Y%m%d-%H%M%S"),
            "plan": {"name": "", "product": "", "publisher": ""},
            "sku": "22_04-lts",
            "subscriptionId": self.subscription,
            "timeStamp": {
                "createdOn": now.strftime(form),
                "expiresOn": (now + timedelta(hours=6)).strftime(form),
            },
            "vmId": self.machine,
        }
        return json.dumps(said).encode()


def _b64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
