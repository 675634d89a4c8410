"""Checks of the keys and of the signer."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from watchword.handlers.crypto.carotation import ca_rows
from watchword.handlers.crypto.keyfiles import load_worker_keys
from watchword.handlers.crypto.keyrotation import KeyRow, worker_rows
from watchword.handlers.errors import ConfigRefused, SignerUnavailable
from watchword.handlers.store import key_holders
from watchword.handlers.store.connection import Database
from watchword.streams.doctor.findings import Finding, fail, ok, warn
from watchword.streams.signer.client import SocketSigner

_SOON = timedelta(days=7)
_CA_SOON = timedelta(days=90)
"""Peers everywhere have to learn of a new one."""


def check_keys(directory: Path, trust_domain: str | None) -> list[Finding]:
    """Return findings of the key directory: readable, closed to others, of the trust domain, not ending."""
    try:
        keys = load_worker_keys(directory)
        rows = [*worker_rows(directory), *ca_rows(directory)]
    except ConfigRefused as error:
        return [fail("keys", problem) for problem in error.problems]
    findings = [ok("keys", f"{directory}, version {keys.version}, pin {keys.pin}")]
    if trust_domain is not None and trust_domain != keys.trust_domain:
        findings.append(fail("trust domain", f"{keys.trust_domain}, configured is {trust_domain}"))
    now = datetime.now(UTC)
    kinds = ("signing", "decryption", "challenge", "ca")
    findings += [_of_kind(kind, [row for row in rows if row.kind == kind], now) for kind in kinds]
    return findings


def _of_kind(kind: str, rows: Sequence[KeyRow], now: datetime) -> Finding:
    """Return one line: how old the active key is, what comes next, which overlap is open, what is to be done."""
    active = next(row for row in rows if row.state == "active")
    prepared = [row for row in rows if row.state == "prepared"]
    over = [row for row in rows if row.state == "retired" and (row.needed_until or now) <= now]
    said = [_active(active, now)]
    said += [f"next {row.kid}, prepared {_age(row.prepared_at, now)}" for row in prepared]
    for row in rows:
        if row.state == "retired" and row not in over:
            said.append(f"{row.kid} may be needed until {row.needed_until:%Y-%m-%d %H:%M}")
    name = f"{kind} key"
    if active.ends_at is not None:
        left = active.ends_at - now
        step = "activate" if prepared else "prepare"
        if left <= timedelta(0):
            return fail(name, "; ".join([*said, f"`watchword keys {step} {kind}`"]))
        if left <= (_CA_SOON if kind == "ca" else _SOON):
            return warn(name, "; ".join([*said, f"`watchword keys {step} {kind}`"]))
    if over:
        done = ", ".join(f"`watchword keys retire {kind} {row.kid}`" for row in over)
        return warn(name, "; ".join([*said, f"nothing needs the old one any more: {done}"]))
    return ok(name, "; ".join(said))


def _active(row: KeyRow, now: datetime) -> str:
    where = "" if row.where == "file" else f" ({row.where})"
    ends = "" if row.ends_at is None else f", ends {row.ends_at:%Y-%m-%d}"
    return f"{row.kid}{where} in use {_age(row.activated_at, now)}{ends}"


def _age(since: datetime | None, now: datetime) -> str:
    return "from the beginning" if since is None else f"for {max(0, (now - since).days)} days"


async def check_key_holders(directory: Path, database: Database) -> AsyncGenerator[Finding]:
    """Yield a finding for each key that a worker which is there has not loaded; raises `StoreUnavailable`."""
    try:
        wanted = _wanted(worker_rows(directory))
    except ConfigRefused:
        return  # said by `check_keys`
    async with database.transaction() as connection:
        lacking = {kid: await key_holders.lacking(connection, kid) for kid in wanted}
    found = {kid: workers for kid, workers in lacking.items() if workers}
    for kid, workers in found.items():
        yield fail("key holders", f"{', '.join(workers)} has not loaded {wanted[kid]} key {kid}")
    if not found:
        yield ok("key holders", "every worker that is there has loaded every key")


def _wanted(rows: Iterable[KeyRow]) -> dict[str, str]:
    """Return the names and kinds of the keys that a worker holds: a retired signing key is never loaded."""
    return {row.kid: row.kind for row in rows if (row.kind, row.state) != ("signing", "retired")}


async def check_signer(socket: Path) -> Finding:
    """Return whether the signer answers."""
    signer = SocketSigner(socket)
    try:
        chain = await signer.chain()
    except SignerUnavailable:
        return fail("signer", f"nothing answers on {socket}")
    finally:
        await signer.close()
    return ok("signer", f"answers on {socket}, {len(chain)} certificates in its chain")
