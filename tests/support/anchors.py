"""What operators write down for attestors to lean on, and who leans on it: images, and sites' agents."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.joins import Bench, Machine
from tests.support.proving import approve_all, csr_sha256, join
from watchword.handlers.attestors.discovery.evidence import sign_assertion
from watchword.handlers.attestors.discovery.prover import DiscoveryProver
from watchword.handlers.attestors.discovery.verifier import KINDS
from watchword.handlers.attestors.image.evidence import new_image
from watchword.handlers.attestors.image.prover import ImageProver
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.prover import Prover

PRODUCT = "4c4c4544-0043-3510-8052-b4c04f4e3332"
MAC, SECOND_MAC = "3c:ec:ef:00:00:01", "3c:ec:ef:00:00:02"


@dataclass(frozen=True)
class MadeImage:
    """An image in the database, and what is installed on its machines."""

    id: str
    text: str

    @property
    def prover(self) -> ImageProver:
        """The prover of a machine that runs it."""
        return ImageProver(lambda: self.text)

    def with_second(self, second: Prover) -> ImageProver:
        """Return the prover of a machine that shows something to another attestor too."""
        return ImageProver(lambda: self.text, second)


async def image(
    bench: Bench,
    *,
    second_fact: str = "approval",
    role: str = "node",
    once_per_machine: bool = False,
    expect: dict[str, str] | None = None,
    expires_at: datetime | None = None,
) -> MadeImage:
    """Add an image by plain SQL."""
    image_id, text, digest = new_image()
    await bench.fetch(
        "INSERT INTO images (id, secret_sha256, tenant, pool, site, role, second_fact, once_per_machine, expect, expires_at,"
        " allowed_kinds, created_by) VALUES ($1, $2, 'acme', 'web', 'berlin', $3, $4, $5, $6, $7, ARRAY['diag.*'], 'test')",
        image_id, digest, role, second_fact, once_per_machine, json.dumps(expect or {}), expires_at,
    )  # fmt: skip
    return MadeImage(image_id, text)


@dataclass
class SiteAgent:
    """A site's agent with its key."""

    bench: Bench
    key: JwsSigner = field(default_factory=lambda: JwsSigner("k1", Ed25519PrivateKey.generate()))

    async def registered(
        self,
        *,
        approval: str = "unknown-machines",
        tenant: str = "acme",
        kinds: tuple[str, ...] = KINDS,
        expires_at: datetime | None = None,
    ) -> "SiteAgent":
        """Add the key's row by plain SQL."""
        await self.bench.place(tenant, "metal", "berlin")
        await self.bench.fetch(
            "INSERT INTO discovery_sites (kid, public_key, tenant, site, pool, approval, allowed_kinds, expires_at, created_by)"
            " VALUES ($1, $2, $3, 'berlin', 'metal', $4, $5, $6, 'test')",
            self.key.kid, self.key.public, tenant, approval, list(kinds), expires_at,
        )  # fmt: skip
        return self

    async def asserted(self, machine: Machine, **changes: object) -> bytes:
        """Return what the agent says of a machine, by the database's time."""
        now: datetime = await self.bench.one("SELECT watchword.now()")
        said: dict[str, Any] = {
            "site": "berlin",
            "csr_sha256": csr_sha256(machine),
            "macs": [MAC, SECOND_MAC],
            "product_uuid": PRODUCT,
            "bmc": "10.0.0.7",
            "expires_at": now + timedelta(minutes=5),
            **changes,
        }
        return sign_assertion(self.key, **said)

    async def vouches(self, machine: Machine, **changes: object) -> dict[str, Any]:
        """Return the answer to a machine that shows what the agent says of it."""
        return await shows(self.bench, machine, await self.asserted(machine, **changes))

    async def lets_in(self, machine: Machine, **changes: object) -> dict[str, Any]:
        """Return the answer once an operator has agreed."""
        await self.vouches(machine, **changes)
        await approve_all(self.bench)
        return await self.vouches(machine, **changes)


async def shows(bench: Bench, machine: Machine, assertion: bytes) -> dict[str, Any]:
    """Return the answer to a ramdisk that shows an assertion."""
    return await join(bench, machine, DiscoveryProver(lambda _csr: assertion), role="ramdisk")
