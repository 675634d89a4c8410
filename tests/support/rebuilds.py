"""Whether the journal explains what joins have written, on a bench whose other rows came by plain SQL."""

from watchword.handlers.store.connection import Database
from watchword.handlers.store.rebuild import Difference, check

OF_JOINS = frozenset(
    (
        "nodes",
        "node_certs",
        "admission_claims",
        "node_subjects",
        "node_bindings",
        "attestation_uses",
    )
)


async def differences(dsn: str) -> list[Difference]:
    """Return what the journal does not explain of the tables that joins write."""
    database = Database(dsn, application_name="rebuild-test")
    try:
        found = await check(database)
    finally:
        await database.close()
    return [difference for difference in found.differences if difference.table in OF_JOINS]
