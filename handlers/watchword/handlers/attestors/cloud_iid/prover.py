"""Asks the metadata service of the machine's cloud who the machine is: the machine's half of `cloud-iid`.

HTTP comes in from whoever runs the prover, as one function that reaches the link's metadata service and
nothing else. What that service says in errors is repeated nowhere: anybody on the link can be it.
"""

import json
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast
from urllib.parse import quote

from watchword.handlers.attestors.cloud_iid.binding import (
    DEFAULT_AUDIENCE,
    bound_audience,
    nonce_for,
)
from watchword.handlers.attestors.cloud_iid.evidence import MAX_SIGNATURE_BYTES, CloudEvidence
from watchword.handlers.prover import NoEvidence
from watchword.schemas.ids import Role

Provider = Literal["aws", "gcp", "azure"]
Method = Literal["GET", "PUT"]

AWS_TOKEN = "/latest/api/token"  # noqa: S105 - a path
AWS_DOCUMENT = "/latest/dynamic/instance-identity/rsa2048"
GOOGLE_TOKEN = "/computeMetadata/v1/instance/service-accounts/default/identity"  # noqa: S105 - a path
AZURE_DOCUMENT = "/metadata/attested/document"
AZURE_API_VERSION = "2020-09-01"

_OK = 200
_SESSION_SECONDS = "60"
_SESSION = re.compile(rb"[A-Za-z0-9+/=_-]{1,512}")
_JWT = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a metadata service answered. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Metadata(Protocol):
    """The metadata service of this machine's link."""

    async def __call__(self, method: Method, path: str, headers: Mapping[str, str]) -> Reply:
        """Send one request, follow nothing, use no proxy; raises `NoEvidence` if nobody answers in time."""
        ...


class CloudIidProver:
    """Proves an instance by what its cloud signs."""

    id = "cloud-iid"

    def __init__(
        self, provider: Provider, metadata: Metadata, audience: str = DEFAULT_AUDIENCE
    ) -> None:
        """Take whose cloud it is, and the way to its metadata service.

        `audience` is what the service is called in Google's tokens; the other clouds have nothing like it.
        """
        self._metadata = metadata
        self._audience = audience
        asks: dict[Provider, Callable[[bytes], Awaitable[CloudEvidence]]] = {
            "aws": self._aws,
            "gcp": self._google,
            "azure": self._azure,
        }
        self._ask = asks[provider]

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return what the cloud signs now.

        Raises:
            NoEvidence: the metadata service is away, busy, switched off, or is none of this cloud.
        """
        del role
        return (await self._ask(csr_sha256)).encode()

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Raise `NoEvidence`: clouds answer no challenges of ours."""
        del challenge, csr_sha256, role
        message = "a cloud's identity cannot answer a challenge"
        raise NoEvidence(message)

    async def _aws(self, _csr_sha256: bytes) -> CloudEvidence:
        # 1. A session (IMDSv2). Its answer travels as many hops as the instance's owner allows, one by
        #    default: in a container it then never arrives.
        # 2. The identity document in PKCS#7, signed by the region's RSA-2048 key; base64 in lines.

        # Step 1
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": _SESSION_SECONDS}
        try:
            reply = await self._metadata("PUT", AWS_TOKEN, headers)
        except NoEvidence as error:
            message = (
                f"{error}; in a container: is the instance's hop limit for metadata 2 or more?"
            )
            raise NoEvidence(message) from None
        session = _body(reply)
        if not _SESSION.fullmatch(session):
            raise _not("AWS's")

        # Step 2
        reply = await self._metadata(
            "GET", AWS_DOCUMENT, {"X-aws-ec2-metadata-token": session.decode()}
        )
        signed = _from_base64(b"".join(_body(reply).split()), "AWS's")
        return CloudEvidence("aws", "rsa2048", b"", signed)

    async def _google(self, csr_sha256: bytes) -> CloudEvidence:
        audience = quote(bound_audience(self._audience, csr_sha256), safe="")
        reply = await self._metadata(
            "GET",
            f"{GOOGLE_TOKEN}?audience={audience}&format=full",
            {"Metadata-Flavor": "Google"},
        )
        token = _body(reply).strip()
        # Google says of itself in its answers who it is; whatever else listens there does not.
        if reply.headers.get("metadata-flavor") != "Google" or not _JWT.fullmatch(token):
            raise _not("Google's")
        return CloudEvidence("gcp", "token", b"", _bounded(token, "Google's"))

    async def _azure(self, csr_sha256: bytes) -> CloudEvidence:
        reply = await self._metadata(
            "GET",
            f"{AZURE_DOCUMENT}?api-version={AZURE_API_VERSION}&nonce={nonce_for(csr_sha256)}",
            {"Metadata": "true"},
        )
        try:
            said: object = json.loads(_body(reply).decode())
        except (ValueError, RecursionError):
            raise _not("Azure's") from None
        found = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        signature = found.get("signature")
        if found.get("encoding") != "pkcs7" or not isinstance(signature, str):
            raise _not("Azure's")
        return CloudEvidence("azure", "attested", b"", _from_base64(signature.encode(), "Azure's"))


def _body(reply: Reply) -> bytes:
    if reply.status != _OK:
        message = f"the metadata service answers {reply.status}"
        raise NoEvidence(message)
    return reply.body


def _from_base64(text: bytes, whose: str) -> bytes:
    try:
        return _bounded(b64decode(text, validate=True), whose)
    except ValueError:
        raise _not(whose) from None


def _bounded(signed: bytes, whose: str) -> bytes:
    if not 0 < len(signed) <= MAX_SIGNATURE_BYTES:
        raise _not(whose)
    return signed


def _not(whose: str) -> NoEvidence:
    return NoEvidence(f"what the metadata service gives is not {whose}")
