"""Which certificates are revoked and have not expired: what a CRL holds."""

from datetime import datetime

from watchword.handlers.crypto.revocation_lists import Revoked
from watchword.handlers.store import operators, standing
from watchword.handlers.store.connection import Database


async def revoked_certificates(database: Database) -> tuple[datetime, list[Revoked]]:
    """Return the time of looking, and the certificates by serial; a day past their end they are left out."""
    async with database.transaction(isolation="repeatable_read") as connection:
        now = await operators.clock(connection)
        rows = await standing.revoked(connection, now)
    return now, [
        Revoked(row["serial"], row["revoked_at"], row["revoked_why"] or "") for row in rows
    ]
