"""What operators write down for attestors: images, sites' keys, cloud accounts, TPMs.

Statements on the connection of whoever has the transaction. `anchors.sql` has the reads of verifiers. What takes
something back waits for the batches that run, as a ban does, so that none admits by what was revoked before it commits.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from watchword.handlers.errors import Conflict, NotFound
from watchword.handlers.store.connection import Connection
from watchword.handlers.store.standing import lock_bans
from watchword.handlers.store.statements import load

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Statements:
    create_image: str
    list_images: str
    lock_image: str
    revoke_image: str
    create_site_key: str
    list_site_keys: str
    lock_site_key: str
    revoke_site_key: str
    create_cloud_account: str
    list_cloud_accounts: str
    get_cloud_account: str
    delete_cloud_account: str
    lock_cloud_account: str
    revoke_cloud_account: str
    enrol_tpms: str
    list_tpms: str
    lock_tpm: str
    revoke_tpm: str
    lock_tpm_policy: str
    set_tpm_policy: str
    list_tpm_policies: str
    delete_tpm_policy: str


_SQL = load(_Statements, "anchor_rows.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow:
    """Where machines go, and what their nodes may be told; `allowed_kinds` None is unrestricted."""

    tenant: str
    pool: str
    site: str | None
    role: str
    allowed_kinds: list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which rows; `after` is the key that the page before ended with."""

    tenant: str | None = None
    after: str | None = None
    unusable_too: bool = False
    """Also what was revoked or has expired."""
    limit: int = 100


# Images


async def create_image(  # noqa: PLR0913 - the columns of a row
    connection: Connection,
    *,
    image_id: str,
    secret_sha256: bytes,
    place: PlaceRow,
    second_fact: str,
    once_per_machine: bool,
    expect: dict[str, str],
    expires_at: datetime | None,
    now: datetime,
    who: str,
) -> Row:
    """Add an image; raises `NotFound` without its pool or site."""
    async with _placed(place.tenant, place.pool, place.site):
        row = await connection.fetchrow(
            _SQL.create_image,
            image_id,
            secret_sha256,
            place.tenant,
            place.pool,
            place.site,
            place.role,
            second_fact,
            once_per_machine,
            place.allowed_kinds,
            json.dumps(expect),
            expires_at,
            now,
            who,
        )
    return _new(row, f"image {image_id}")


async def list_images(connection: Connection, wanted: ListFilter) -> list[Row]:
    """Return a page of images by id, without the hash of their secret."""
    return await _listed(connection, _SQL.list_images, wanted)


async def revoke_image(connection: Connection, image_id: str, now: datetime) -> Row:
    """Revoke an image; raises `NotFound`, or `Conflict` if it was revoked before."""
    return await _revoked(
        connection, f"image {image_id}", _SQL.lock_image, _SQL.revoke_image, now, image_id
    )


# Sites' keys


async def create_site_key(
    connection: Connection,
    *,
    kid: str,
    public_key: bytes,
    place: PlaceRow,
    approval: str,
    expires_at: datetime | None,
    now: datetime,
    who: str,
) -> Row:
    """Add a key of a site's agent; raises `NotFound` without its pool or site, `Conflict` if its name is taken."""
    async with _placed(place.tenant, place.pool, place.site):
        row = await connection.fetchrow(
            _SQL.create_site_key,
            kid,
            public_key,
            place.tenant,
            place.site,
            place.pool,
            approval,
            place.allowed_kinds,
            expires_at,
            now,
            who,
        )
    return _new(row, f"site key {kid}")


async def list_site_keys(connection: Connection, wanted: ListFilter) -> list[Row]:
    """Return a page of sites' keys by name."""
    return await _listed(connection, _SQL.list_site_keys, wanted)


async def revoke_site_key(connection: Connection, kid: str, now: datetime) -> Row:
    """Revoke a site's key; raises `NotFound`, or `Conflict` if it was revoked before."""
    return await _revoked(
        connection, f"site key {kid}", _SQL.lock_site_key, _SQL.revoke_site_key, now, kid
    )


# Cloud accounts


async def create_cloud_account(
    connection: Connection,
    *,
    provider: str,
    account: str,
    place: PlaceRow,
    regions: list[str] | None,
    approval: bool,
    now: datetime,
    who: str,
) -> Row:
    """Add a cloud account; raises `NotFound` without its pool or site, `Conflict` if there is such an account."""
    async with _placed(place.tenant, place.pool, place.site):
        row = await connection.fetchrow(
            _SQL.create_cloud_account,
            provider,
            account,
            place.tenant,
            place.pool,
            place.site,
            place.role,
            regions,
            approval,
            place.allowed_kinds,
            now,
            who,
        )
    return _new(row, f"cloud account {provider}/{account}")


async def list_cloud_accounts(connection: Connection, wanted: ListFilter) -> list[Row]:
    """Return a page of cloud accounts by `provider/account`."""
    return await _listed(connection, _SQL.list_cloud_accounts, wanted)


async def revoke_cloud_account(
    connection: Connection, provider: str, account: str, now: datetime
) -> Row:
    """Revoke a cloud account; raises `NotFound`, or `Conflict` if it was revoked before."""
    what = f"cloud account {provider}/{account}"
    lock, revoke = _SQL.lock_cloud_account, _SQL.revoke_cloud_account
    return await _revoked(connection, what, lock, revoke, now, provider, account)


async def get_cloud_account(connection: Connection, provider: str, account: str) -> Row:
    """Return a cloud account; raises `NotFound`."""
    row = await connection.fetchrow(_SQL.get_cloud_account, provider, account)
    return _there(row, f"cloud account {provider}/{account}")


async def delete_cloud_account(connection: Connection, provider: str, account: str) -> Row:
    """Take a cloud account away and return what it was; raises `NotFound`."""
    row = await connection.fetchrow(_SQL.delete_cloud_account, provider, account)
    return _there(row, f"cloud account {provider}/{account}")


# TPMs


async def enrol_tpms(
    connection: Connection,
    eks: dict[bytes, str],
    place: PlaceRow,
    *,
    approval: bool,
    now: datetime,
    who: str,
) -> list[Row]:
    """Enrol endorsement keys (SHA-256 → note); returns the rows of those that were not enrolled before.

    Raises `NotFound` without the pool or site.
    """
    keys = sorted(eks)
    async with _placed(place.tenant, place.pool, place.site):
        rows = await connection.fetch(
            _SQL.enrol_tpms,
            keys,
            [eks[key] for key in keys],
            place.tenant,
            place.pool,
            place.site,
            place.role,
            place.allowed_kinds,
            now,
            who,
            approval,
        )
    return [dict(row) for row in rows]


async def list_tpms(connection: Connection, wanted: ListFilter) -> list[Row]:
    """Return a page of enrolled TPMs by the SHA-256 of their endorsement keys; `after` is hexadecimal."""
    after = None if wanted.after is None else bytes.fromhex(wanted.after)
    rows = await connection.fetch(
        _SQL.list_tpms, wanted.tenant, after, wanted.unusable_too, wanted.limit
    )
    return [dict(row) for row in rows]


async def revoke_tpm(connection: Connection, ek_sha256: bytes, now: datetime) -> Row:
    """Revoke an enrolment; raises `NotFound`, or `Conflict` if it was revoked before."""
    what = f"TPM {ek_sha256.hex()}"
    return await _revoked(connection, what, _SQL.lock_tpm, _SQL.revoke_tpm, now, ek_sha256)


async def lock_tpm_policy(connection: Connection, tenant: str, pool: str) -> dict[str, Any]:
    """Lock a pool's policy and return its content; raises `NotFound`."""
    row = await connection.fetchrow(_SQL.lock_tpm_policy, tenant, pool)
    if row is None:
        message = f"no TPM policy of pool {tenant}/{pool}"
        raise NotFound(message)
    found: dict[str, Any] = json.loads(row["policy"])
    return found


async def set_tpm_policy(
    connection: Connection,
    tenant: str,
    pool: str,
    policy: dict[str, Any],
    *,
    now: datetime,
    who: str,
) -> Row:
    """Write what TPMs of a pool have to show, in the place of what stood there; raises `NotFound`."""
    await lock_bans(connection)
    async with _placed(tenant, pool, None):
        row = await connection.fetchrow(
            _SQL.set_tpm_policy, tenant, pool, json.dumps(policy), now, who
        )
    return _new(row, "policy")


async def list_tpm_policies(connection: Connection, tenant: str | None) -> list[Row]:
    """Return the policies of a tenant's pools, or of all, parsed."""
    rows = await connection.fetch(_SQL.list_tpm_policies, tenant)
    return [dict(row) | {"policy": json.loads(row["policy"])} for row in rows]


async def delete_tpm_policy(connection: Connection, tenant: str, pool: str) -> Row:
    """Take a pool's policy away: no TPM joins it then; raises `NotFound`."""
    await lock_bans(connection)
    row = await connection.fetchrow(_SQL.delete_tpm_policy, tenant, pool)
    if row is None:
        message = f"no TPM policy of pool {tenant}/{pool}"
        raise NotFound(message)
    return dict(row)


# What they share


async def _listed(connection: Connection, statement: str, wanted: ListFilter) -> list[Row]:
    rows = await connection.fetch(
        statement, wanted.tenant, wanted.after, wanted.unusable_too, wanted.limit
    )
    return [dict(row) for row in rows]


async def _revoked(
    connection: Connection, what: str, lock: str, revoke: str, now: datetime, *key: object
) -> Row:
    await lock_bans(connection)
    locked = await connection.fetchrow(lock, *key)
    if locked is None:
        message = f"no {what}"
        raise NotFound(message)
    if locked["revoked_at"] is not None:
        message = f"{what} was revoked before"
        raise Conflict(message)
    row = await connection.fetchrow(revoke, *key, now)
    return dict(row)  # type: ignore[arg-type]  # the row is locked


def _there(row: "asyncpg.Record | None", what: str) -> Row:
    if row is None:
        message = f"no {what}"
        raise NotFound(message)
    return dict(row)


def _new(row: "asyncpg.Record | None", what: str) -> Row:
    if row is None:
        message = f"{what} exists"
        raise Conflict(message)
    return dict(row)


@asynccontextmanager
async def _placed(tenant: str, pool: str, site: str | None) -> AsyncGenerator[None]:
    """Translate a missing pool or site to `NotFound`."""
    try:
        yield
    except asyncpg.ForeignKeyViolationError as error:
        is_site = "site" in (error.constraint_name or "").removeprefix("discovery_sites")
        name = f"site {tenant}/{site}" if is_site else f"pool {tenant}/{pool}"
        message = f"no {name}"
        raise NotFound(message) from error
