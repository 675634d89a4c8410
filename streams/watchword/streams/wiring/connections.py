"""PostgreSQL and Kafka, as the settings name them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from watchword.handlers.errors import ConfigRefused
from watchword.handlers.store.connection import Database
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.settings import Settings


def database_url(settings: Settings) -> str:
    """Return where PostgreSQL is; raises `ConfigRefused` if nothing says so."""
    if settings.database.url is None:
        raise ConfigRefused(
            ["database.url: not set; give DATABASE_URL, libpq's variables or database.url_file"]
        )
    return settings.database.url.get_secret_value()


@asynccontextmanager
async def open_database(settings: Settings, process: str) -> AsyncGenerator[Database]:
    """Give the database under the name of a process, and close it afterwards."""
    database = Database(database_url(settings), application_name=f"watchword-{process}")
    try:
        yield database
    finally:
        await database.close()


def kafka_connection(settings: Settings) -> KafkaConnection:
    """Return where Kafka is; raises `ConfigRefused` if nothing says so."""
    if settings.kafka.bootstrap_servers is None:
        raise ConfigRefused(
            ["kafka.bootstrap_servers: not set; give KAFKA_BOOTSTRAP_SERVERS or the setting"]
        )
    return settings.kafka.connection()
