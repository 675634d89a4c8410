"""The roles that attestors' own SQL runs with: one for each attestor that says `uses_tx = True`, or has tables.

A role may do what its attestor needs and nothing of ours but insert uses. It cannot log in; a worker's user
is a member and takes it on for one statement at a time. That guards against mistakes, not malice: an
attestor's code can do all that a worker can.
"""

from collections.abc import Sequence

from watchword.handlers.definition import MOST_ID_CHARACTERS_WITH_SQL, author_role
from watchword.handlers.errors import BadArgument
from watchword.handlers.store.connection import Connection, Database
from watchword.schemas.ids import AttestorId
from watchword.schemas.requests import ATTESTOR_ID

_MISSING = """
SELECT wanted FROM unnest($1::text[]) AS wanted LEFT JOIN pg_roles r ON r.rolname = wanted
WHERE r.oid IS NULL OR NOT pg_has_role(r.oid, 'MEMBER')
"""
_MEMBERS_WITH_OPTIONS = 16
"""From PostgreSQL 16 on a membership can be for taking the role on alone, without having what it may."""


async def create_author_role(
    database: Database, attestor: str, *, worker: str | None = None
) -> str:
    """Make the role of an attestor's SQL if it is not there, and let a worker's user take it on; return its name.

    `worker` is the user that workers log in with: this connection's, if not given. The role may insert into
    `attestation_uses`; what else the attestor needs is for the operator to grant.

    Raises:
        BadArgument: that is no attestor's id, or too long for names in the database.
        StoreRejected: our user may make no roles.
    """
    if not ATTESTOR_ID.fullmatch(attestor) or len(attestor) > MOST_ID_CHARACTERS_WITH_SQL:
        message = (
            "the id of an attestor with SQL of its own: a DNS label of at most"
            f" {MOST_ID_CHARACTERS_WITH_SQL} characters"
        )
        raise BadArgument(message)
    role = author_role(attestor)
    async with database.transaction() as connection:
        await make_role(connection, role, member=worker)
    return role


async def make_role(connection: Connection, role: str, *, member: str | None = None) -> None:
    """Make a role if it is not there, and `member` (our own user, if not given) a member of it, in this transaction."""
    if not await connection.fetchval("SELECT count(*) FROM pg_roles WHERE rolname = $1", role):
        await connection.execute(f"CREATE ROLE {role} NOLOGIN NOINHERIT")
    await connection.execute(f"GRANT USAGE ON SCHEMA watchword TO {role}")
    await connection.execute(f"GRANT INSERT ON watchword.attestation_uses TO {role}")
    user = await connection.fetchval("SELECT coalesce($1, current_user)", member)
    # Only if need be: two databases of one server would stand in each other's way.
    if not await connection.fetchval("SELECT pg_has_role($1, $2, 'MEMBER')", user, role):
        name = await connection.fetchval("SELECT quote_ident($1)", user)
        is_newer = connection.get_server_version().major >= _MEMBERS_WITH_OPTIONS
        options = " WITH INHERIT FALSE, SET TRUE" if is_newer else ""
        await connection.execute(f"GRANT {role} TO {name}{options}")


async def missing_author_roles(
    connection: Connection, attestors: Sequence[AttestorId]
) -> list[AttestorId]:
    """Return the attestors whose role is not there, or is not for this connection's user to take on."""
    roles = {author_role(attestor): attestor for attestor in attestors}
    return [roles[row[0]] for row in await connection.fetch(_MISSING, list(roles))]
