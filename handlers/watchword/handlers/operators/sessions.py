"""Sessions of the console: opened by a link that is good once, an API token, a client certificate, or an identity provider."""

import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

from watchword.handlers.crypto import named_secrets
from watchword.handlers.crypto.named_secrets import Made, NamedSecret
from watchword.handlers.errors import BadArgument, Denied
from watchword.handlers.operators.access import ROLES, Access, OperatorRole
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.api_tokens import access_by_token, parse_api_token
from watchword.handlers.operators.certificates import (
    ClientCertificate,
    access_by_certificate,
    is_certificate,
)
from watchword.handlers.operators.places import label
from watchword.handlers.store import access as store
from watchword.handlers.store import operators
from watchword.handlers.store.access import SecretRow
from watchword.handlers.store.connection import Connection, Database
from watchword.handlers.store.operators import Row

LINK_PREFIX = "wl1"
SESSION_PREFIX = "ws1"
LONGEST_LINK = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session; its text is for the cookie alone."""

    access: Access
    text: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """An open session."""

    id: str
    access: Access
    expires_at: datetime
    certificate: str | None = None
    """The name of the client certificate that opened it: without one of that name it is closed to whoever has its cookie."""


async def create_link(
    database: Database,
    actor: Actor,
    *,
    who: str,
    scope: str,
    role: OperatorRole,
    expires_in: timedelta = timedelta(minutes=15),
) -> str:
    """Return the secret of a link that lets somebody in once, as `who`; only its hash is stored.

    Raises:
        BadArgument: the role or the scope is none, or the link would live too long.
    """
    Actor(who)
    label(scope, "tenant")
    if role not in ROLES or not timedelta(0) < expires_in <= LONGEST_LINK:
        message = f"a link has a role ({', '.join(ROLES)}) and lives at most a day"
        raise BadArgument(message)
    made = named_secrets.make(LINK_PREFIX)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        await store.add_link(connection, _row(made, Access(who, scope, role), now + expires_in))
        detail = {"who": who, "scope": scope, "role": role}
        await _audit(connection, actor, "operator-link.created", made.id, detail, now)
    return made.text


async def open_by_link(database: Database, text: str, life: timedelta, cluster: str) -> Opened:
    """Use a link up, and open a session; raises `Denied`."""
    shown = _parsed(LINK_PREFIX, text)
    async with database.transaction() as connection:
        row = await store.lock_link(connection, shown.id)
        if row is None or not _is_same(row, shown):
            message = "this link was used, has expired, or never was one"
            raise Denied(message)
        await store.use_link(connection, shown.id)
        access = Access(row["who"], row["scope"], row["role"])
        return await _open(connection, access, life, f"link {shown.id}", None, cluster)


async def open_by_token(database: Database, text: str, life: timedelta, cluster: str) -> Opened:
    """Open a session by an API token, which ends with it; raises `Denied`."""
    try:
        shown = parse_api_token(text)
    except BadArgument as error:
        raise Denied(str(error)) from None
    access = await access_by_token(database, shown)
    async with database.transaction() as connection:
        return await _open(connection, access, life, f"token {shown.id}", shown.id, cluster)


async def open_by_certificate(
    database: Database, shown: ClientCertificate, life: timedelta, cluster: str
) -> Opened:
    """Open a session by a client certificate, which ends with it and with its operator's row; raises `Denied`."""
    found = await access_by_certificate(database, shown)
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        life = min(life, shown.not_after - now)
        by = f"client certificate {found.name}"
        return await _open(connection, found.access, life, by, found.id, cluster)


async def open_by_identity(
    database: Database, access: Access, life: timedelta, issuer: str, cluster: str
) -> Opened:
    """Open a session for whom an identity provider named."""
    async with database.transaction() as connection:
        return await _open(connection, access, life, f"OpenID Connect {issuer}", None, cluster)


async def find_session(database: Database, text: str) -> Session | None:
    """Return the session of a cookie; None if it is none, or is over."""
    try:
        shown = named_secrets.parse(SESSION_PREFIX, "session", text)
    except BadArgument:
        return None
    async with database.transaction() as connection:
        row = await store.session(connection, shown.id)
    if row is None or not _is_same(row, shown):
        return None
    name: str | None = row["token_name"]
    by_certificate = name is not None and is_certificate(row["token_id"], name)
    access = Access(row["who"], row["scope"], row["role"])
    return Session(shown.id, access, row["expires_at"], name if by_certificate else None)


async def close_session(database: Database, session: Session) -> None:
    """End a session."""
    async with database.transaction() as connection:
        await store.close_session(connection, session.id)


async def _open(
    connection: Connection,
    access: Access,
    life: timedelta,
    by: str,
    token_id: str | None,
    cluster: str,
) -> Opened:
    made = named_secrets.make(SESSION_PREFIX)
    now = await operators.clock(connection)
    row = _row(made, access, now + life)
    await store.open_session(connection, row, token_id, now)
    detail = {"scope": access.scope, "role": access.role, "by": by}
    actor = Actor(access.who, "", cluster)
    await _audit(connection, actor, "session.opened", made.id, detail, now)
    return Opened(access, made.text, now + life)


async def _audit(
    connection: Connection,
    actor: Actor,
    action: str,
    target: str,
    detail: dict[str, str],
    now: datetime,
) -> None:
    await operators.audit(
        connection,
        at=now,
        who=actor.who,
        action=action,
        target=target,
        why=actor.why,
        detail=dict(detail),
    )


def _row(made: Made, access: Access, expires_at: datetime) -> SecretRow:
    return SecretRow(
        id=made.id,
        secret_sha256=made.sha256,
        who=access.who,
        scope=access.scope,
        role=access.role,
        expires_at=expires_at,
    )


def _parsed(prefix: str, text: str) -> NamedSecret:
    try:
        return named_secrets.parse(prefix, "link", text)
    except BadArgument:
        message = "this link was used, has expired, or never was one"
        raise Denied(message) from None


def _is_same(row: Row, shown: NamedSecret) -> bool:
    return hmac.compare_digest(row["secret_sha256"], sha256(shown.secret).digest())
