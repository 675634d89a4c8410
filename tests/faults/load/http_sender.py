"""Sends requests through gateways, and asks gateways for the answers."""

import asyncio
import random
from collections.abc import Sequence

import httpx

from tests.faults.load.kinds import Send

_REST_S = 0.3
_POLL_S = 5


class HttpSender:
    """Any of some gateways; where one is away another is asked, as behind a load balancer."""

    def __init__(self, gateways: Sequence[str], rng: random.Random) -> None:
        """Take the gateways' addresses, such as `http://127.0.0.1:8080`."""
        self._gateways = list(gateways)
        self._rng = rng
        limits = httpx.Limits(max_connections=400, max_keepalive_connections=20)
        self._client = httpx.AsyncClient(timeout=15.0, limits=limits)
        self.failures = 0
        """Posts that were not taken, and made again."""
        self.told: dict[bytes, bytes] = {}
        """What gateways answered, by the digest of the request."""

    async def send(self, send: Send) -> None:
        """Return when a gateway has taken the request."""
        while True:
            try:
                response = await self._client.post(
                    f"{self._rng.choice(self._gateways)}/v1/joins",
                    content=send.value,
                    headers={"Content-Type": "application/json"},
                )
            except httpx.HTTPError:
                self.failures += 1
            else:
                if response.status_code == httpx.codes.ACCEPTED:
                    return
                self.failures += 1
            await asyncio.sleep(_REST_S)

    async def await_answer(self, digest: bytes, *, within_s: float) -> bool:
        """Ask gateways until one has the answer; tell whether it came in time."""
        deadline = asyncio.get_running_loop().time() + within_s
        while asyncio.get_running_loop().time() < deadline:
            gateway = self._rng.choice(self._gateways)
            try:
                response = await self._client.get(
                    f"{gateway}/v1/joins/{digest.hex()}", params={"wait": _POLL_S}
                )
            except httpx.HTTPError:
                await asyncio.sleep(_REST_S)
                continue
            if response.status_code == httpx.codes.OK:
                self.told[digest] = response.content
                return True
            if response.status_code != httpx.codes.ACCEPTED:
                await asyncio.sleep(_REST_S)
        return False

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()
