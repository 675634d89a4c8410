"""Rows of refusals, as workers write them."""

from hashlib import sha256

from watchword.handlers.store.connection import Connection

INSERT = """
INSERT INTO refusals (type, attestor, reason, tenant, role, request_sha256, request_id, csr_sha256, hardware_key_sha256,
    topic, "partition", "offset", worker, published, occurred_at)
SELECT 'refused', $2, $3, $1, 'node', sha256(n::text::bytea), 'request-' || n, sha256((n % $6)::text::bytea), NULL,
    'join.requests', 0, n, 'test', n <= $5, watchword.now()
FROM generate_series(1, $4) AS n
"""


async def refuse(
    connection: Connection,
    count: int,
    *,
    published: int = 0,
    tenant: str = "root",
    attestor: str = "join-token",
    reason: str = "used-up",
    distinct_csrs: int = 1_000_000,
) -> None:
    """Record refusals of one bucket; the first `published` of them have a detail event elsewhere."""
    await connection.execute(INSERT, tenant, attestor, reason, count, published, distinct_csrs)


TRY = """
INSERT INTO refusals (type, attestor, reason, tenant, role, request_sha256, request_id, csr_sha256, hardware_key_sha256,
    topic, "partition", "offset", worker, published, occurred_at, tried_sha256, address)
SELECT 'refused', $1, $2, $3, 'node', sha256(gen_random_uuid()::text::bytea), gen_random_uuid()::text, $4, $5,
    'join.requests', 0, 0, 'test', true, watchword.now(), $6, $7
"""


async def try_credential(
    connection: Connection,
    tried: str | None,
    *,
    attestor: str = "join-token",
    reason: str = "bad-secret",
    tenant: str = "root",
    csr: str = "csr",
    hardware_key: str | None = None,
    address: str | None = None,
) -> None:
    """Record the refusal of one try; names are hashed."""
    await connection.execute(
        TRY, attestor, reason, tenant, _digest(csr), _digest(hardware_key), _digest(tried), address
    )


def _digest(name: str | None) -> bytes | None:
    return None if name is None else sha256(name.encode()).digest()
