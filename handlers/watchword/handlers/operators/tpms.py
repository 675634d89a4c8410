"""TPMs that may join, by their endorsement keys, and what TPMs of a pool have to show."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watchword.handlers.attestors.tpm.policy import UnreadablePolicy, read_policy
from watchword.handlers.errors import BadArgument, Conflict
from watchword.handlers.operators.actor import Act, Actor, record, record_all
from watchword.handlers.operators.grants import Grant, check_limit
from watchword.handlers.operators.places import label
from watchword.handlers.store import anchor_rows, operators
from watchword.handlers.store.anchor_rows import ListFilter
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.operators import Row
from watchword.schemas.canonical import canonical

MAX_TOGETHER = 2_000
"""Rows of one enrolment; longer lists go in several."""

_MAX_NOTE = 200
_MAX_POLICY_BYTES = 16_384
_SHOWN = 10
_EK = re.compile(r"[0-9a-fA-F]{64}")
_VALUE = re.compile(r"([a-z0-9_]{1,16}):([0-9]{1,2})=([0-9a-fA-F]{40,128})")


@dataclass(frozen=True, slots=True)
class ReferenceValue:
    """A value that a PCR may have, in hexadecimal, in a bank as policies name it."""

    bank: str
    pcr: int
    digest: str

    @classmethod
    def parse(cls, text: str) -> "ReferenceValue":
        """Return the value that `bank:pcr=hex` names; raises `BadArgument`."""
        found = _VALUE.fullmatch(text)
        if found is None:
            message = f"a value is written bank:pcr=hex, such as sha256:7=65ca…, not {text!r}"
            raise BadArgument(message)
        return cls(found[1], int(found[2]), found[3].lower())


def read_list(text: str) -> dict[bytes, str]:
    """Return SHA-256 of endorsement keys with notes, from CSV: `hex[,note]`, one a line; `#` begins a comment.

    Raises:
        BadArgument: with every line that is none, at most ten; nothing; or too many.
    """
    found: dict[bytes, str] = {}
    problems: list[str] = []
    rows = csv.reader(text.splitlines())
    for row in rows:
        if not row or row[0].startswith("#"):
            continue
        key, *notes = (cell.strip() for cell in row)
        note = notes[0] if notes else ""
        if not _EK.fullmatch(key) or len(row) > 2:  # noqa: PLR2004 - key and note
            problems.append(f"line {rows.line_num}: 64 hex digits and perhaps a note")
        elif len(note) > _MAX_NOTE or not note.isprintable():
            problems.append(f"line {rows.line_num}: a note has at most {_MAX_NOTE} characters")
        elif bytes.fromhex(key) in found:
            problems.append(f"line {rows.line_num}: this key was there before")
        else:
            found[bytes.fromhex(key)] = note
    if problems:
        raise BadArgument("; ".join(problems[:_SHOWN]))
    if not 0 < len(found) <= MAX_TOGETHER:
        message = f"1 to {MAX_TOGETHER} keys at a time, not {len(found)}"
        raise BadArgument(message)
    return found


async def enrol_tpms(
    database: Database,
    actor: Actor,
    eks: Mapping[bytes, str],
    grant: Grant,
    *,
    approval: bool = False,
) -> list[Row]:
    """Let TPMs join, all or none; `eks` is SHA-256 → note. Return their rows.

    With `approval`, an operator has to agree to the first join of each.

    Raises:
        BadArgument: the grant makes no sense.
        NotFound: there is no such pool or site.
        Conflict: some are enrolled already, or were revoked.
    """
    grant.check(actor.kinds)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        rows = await anchor_rows.enrol_tpms(
            connection, dict(eks), grant.row(), approval=approval, now=now, who=actor.who
        )
        if missing := sorted(eks.keys() - {row["ek_sha256"] for row in rows}):
            some = ", ".join(key.hex() for key in missing[:_SHOWN])
            message = f"{len(missing)} are enrolled already, or were revoked: {some}"
            raise Conflict(message)
        acts = [_act("tpm-endorsement.created", row) for row in rows]
        await record_all(connection, actor, acts, now)
    return rows


async def list_tpms(database: Database, wanted: ListFilter) -> list[Row]:
    """Return a page of enrolled TPMs by the SHA-256 of their keys; raises `BadArgument`."""
    check_limit(wanted.limit)
    if wanted.after is not None:
        ek_digest(wanted.after)
    async with database.transaction() as connection:
        return await anchor_rows.list_tpms(connection, wanted)


async def revoke_tpm(database: Database, actor: Actor, ek_sha256: bytes) -> Row:
    """Let this TPM join no more; its node stays. Return its row.

    Raises:
        NotFound: it is not enrolled.
        Conflict: it was revoked before.
    """
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.revoke_tpm(connection, ek_sha256, now)
        await record(connection, actor, _act("tpm-endorsement.revoked", row), now)
    return row


def ek_digest(text: str) -> bytes:
    """Return the SHA-256 of an endorsement key; raises `BadArgument`."""
    if not _EK.fullmatch(text):
        message = "an endorsement key is named by its SHA-256: 64 hex digits"
        raise BadArgument(message)
    return bytes.fromhex(text)


# Policies


async def set_policy(
    database: Database, actor: Actor, tenant: str, pool: str, policy: Mapping[str, Any]
) -> Row:
    """Say what TPMs of a pool have to show, in the place of what was said before. Return the row.

    Raises:
        BadArgument: a policy that no worker could read, or one that is too long.
        NotFound: there is no such pool.
    """
    _check_policy(tenant, pool, policy)
    async with database.transaction() as connection:
        return await _set(connection, actor, tenant, pool, policy)


async def change_values(
    database: Database,
    actor: Actor,
    tenant: str,
    pool: str,
    *,
    add: Sequence[ReferenceValue] = (),
    remove: Sequence[ReferenceValue] = (),
) -> Row:
    """Add values that PCRs of a pool's TPMs may have, or take some away. Return the policy's row.

    Raises:
        BadArgument: a value that is none, or that is not there; or a policy that could not be read afterwards.
        NotFound: the pool has no policy.
    """
    label(tenant, "tenant")
    label(pool, "pool")
    async with database.transaction() as connection:
        said = await anchor_rows.lock_tpm_policy(connection, tenant, pool)
        banks: dict[str, dict[str, list[str]]] = said.setdefault("values", {})
        for value in add:
            found = banks.setdefault(value.bank, {}).setdefault(str(value.pcr), [])
            if value.digest not in found:
                found.append(value.digest)
        for value in remove:
            found = banks.get(value.bank, {}).get(str(value.pcr), [])
            if value.digest not in found:
                message = f"{value.bank}:{value.pcr} has no value {value.digest}"
                raise BadArgument(message)
            found.remove(value.digest)
            if not found:
                del banks[value.bank][str(value.pcr)]
        said["values"] = {bank: pcrs for bank, pcrs in banks.items() if pcrs}
        if not said["values"]:
            del said["values"]
        _check_policy(tenant, pool, said)
        return await _set(connection, actor, tenant, pool, said)


async def _set(
    connection: Connection, actor: Actor, tenant: str, pool: str, policy: Mapping[str, Any]
) -> Row:
    now = await operators.clock(connection)
    row = await anchor_rows.set_tpm_policy(
        connection, tenant, pool, dict(policy), now=now, who=actor.who
    )
    act = Act("tpm-policy.set", tenant, f"{tenant}/{pool}", row, {"policy": dict(policy)})
    await record(connection, actor, act, now)
    return row


def _check_policy(tenant: str, pool: str, policy: Mapping[str, Any]) -> None:
    label(tenant, "tenant")
    label(pool, "pool")
    try:
        read_policy(policy)
    except UnreadablePolicy as error:
        message = f"policy: {error}"
        raise BadArgument(message) from None
    if len(canonical(dict(policy))) > _MAX_POLICY_BYTES:
        message = f"a policy has at most {_MAX_POLICY_BYTES} bytes"
        raise BadArgument(message)


async def list_policies(database: Database, *, tenant: str | None = None) -> list[Row]:
    """Return the policies of a tenant's pools, or of all."""
    if tenant is not None:
        label(tenant, "tenant")
    async with database.transaction() as connection:
        return await anchor_rows.list_tpm_policies(connection, tenant)


async def delete_policy(database: Database, actor: Actor, tenant: str, pool: str) -> Row:
    """Take a pool's policy away: no TPM joins it then. Return what it was; raises `NotFound`."""
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = await anchor_rows.delete_tpm_policy(
            connection, label(tenant, "tenant"), label(pool, "pool")
        )
        act = Act("tpm-policy.deleted", tenant, f"{tenant}/{pool}", row, {"pool": pool})
        await record(connection, actor, act, now)
    return row


def _act(event_type: str, row: Row) -> Act:
    detail = {
        "pool": row["pool"],
        "site": row["site"],
        "role": row["role"],
        "approval": bool(row["approval"]),
        "note": row["note"],
        "allowedKinds": row["allowed_kinds"],
    }
    return Act(event_type, row["tenant"], row["ek_sha256"].hex(), row, detail)
