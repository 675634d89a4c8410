"""The metadata service of a cloud, on this machine's link: plain HTTP to one address, never through a proxy."""

import asyncio
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from watchword.handlers.attestors.cloud_iid.prover import Method, Reply
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence

if TYPE_CHECKING:
    import httpx

ADDRESS = "http://169.254.169.254"
"""Where all three clouds have it. No name is looked up: DNS is somebody else's word."""

_MAX_BODY_BYTES = 64 * 1024
_WITHIN_S = 5.0


class LinkLocalMetadata:
    """Asks the metadata service; implements `Metadata` of `cloud-iid`."""

    def __init__(self, address: str = ADDRESS, *, within_s: float = _WITHIN_S) -> None:
        """Name the address, which is of the link or of this very machine, and how long one answer may take.

        Raises:
            BadArgument: it is an address further away.
        """
        host = urlsplit(address).hostname or ""
        try:
            at = ip_address(host)
            is_near = at.is_link_local or at.is_loopback
        except ValueError:
            is_near = False
        if not is_near:
            message = "a metadata service has an address of the link"
            raise BadArgument(message)
        self._address = address
        self._within_s = within_s

    async def __call__(self, method: Method, path: str, headers: Mapping[str, str]) -> Reply:
        """See `Metadata`."""
        import httpx  # noqa: PLC0415 - 100 ms that an agent on other machines need not pay

        try:
            async with (
                asyncio.timeout(self._within_s),
                httpx.AsyncClient(
                    base_url=self._address,
                    # Given one, httpx takes none from the environment, and makes no store of certificates.
                    transport=httpx.AsyncHTTPTransport(
                        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                    ),
                    trust_env=False,
                    follow_redirects=False,
                    headers={"User-Agent": "watchword-agent", "Accept-Encoding": "identity"},
                ) as client,
                client.stream(method, path, headers=dict(headers)) as response,
            ):
                body = await _read(response)
        except TimeoutError:
            message = f"no metadata service answers at {self._address}"
            raise NoEvidence(message) from None
        except httpx.HTTPError as error:
            message = f"no metadata service answers at {self._address} ({type(error).__name__})"
            raise NoEvidence(message) from None
        return Reply(
            response.status_code, {k.lower(): v for k, v in response.headers.items()}, body
        )


async def _read(response: "httpx.Response") -> bytes:
    content = bytearray()
    async for part in response.aiter_raw():
        content += part
        if len(content) > _MAX_BODY_BYTES:
            message = f"a metadata service answers no more than {_MAX_BODY_BYTES} bytes"
            raise NoEvidence(message)
    return bytes(content)
