"""Connections with the time limits that keep a paused process from stopping the fleet."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import asyncpg

from watchword.handlers.store.translate import FOREIGN, translate, translated

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
"""The first argument of every function in the store: whoever has the transaction passes it down."""

SCHEMA: Final = "watchword"

TIME_LIMITS: Final = {
    "idle_in_transaction_session_timeout": "2000",
    "lock_timeout": "5000",
    "statement_timeout": "10000",
    "tcp_user_timeout": "10000",
}
"""Milliseconds. `doctor` checks that a session really has them."""


BY_KEY: Final = {"enable_seqscan": "off"}
"""For sessions whose every read has an index: PostgreSQL keeps plans, and one that was made when a table was known
to be empty reads it whole as it grows. Seen in a profile; on tables that nobody has analyzed it makes no difference."""


_CLOSE_SECONDS = 1
"""Less than a session may idle in a transaction: who hangs up may have one open beside it."""


class Database:
    """Where PostgreSQL is, and how to get a connection to it."""

    def __init__(self, dsn: str, *, application_name: str, schema: str = SCHEMA) -> None:
        """Nothing is opened yet. `application_name` shows in pg_stat_activity."""
        self._dsn = dsn
        self._settings = {
            "search_path": f"{schema},pg_catalog",
            "application_name": application_name,
            "jit": "off",
            "TimeZone": "UTC",
            **TIME_LIMITS,
        }
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._pool_lock = asyncio.Lock()

    async def connect(self, *, by_key: bool = False) -> Connection:
        """Return a new connection that the caller owns; `by_key` for one that reads by keys alone.

        Raises:
            StoreUnavailable: PostgreSQL is away or refuses the login.
        """
        async with translated():
            return await asyncpg.connect(
                self._dsn,
                timeout=5,
                command_timeout=15,
                server_settings=self._settings | (BY_KEY if by_key else {}),
            )

    @asynccontextmanager
    async def transaction(self, *, isolation: str | None = None) -> AsyncGenerator[Connection]:
        """Give a connection inside a transaction that commits at the end: for operators and the keeper.

        Raises:
            StoreUnavailable: PostgreSQL is away, or ended the connection.
            StoreRejected: a statement was refused for its data.
        """
        pool = await self._opened()
        try:
            async with pool.acquire(timeout=10) as connection:
                started = connection.transaction(isolation=isolation)  # type: ignore[arg-type]  # checked by asyncpg
                async with started:
                    yield connection  # type: ignore[misc]  # a proxy of the same interface
        except FOREIGN as error:
            raise translate(error) from error

    async def _opened(self) -> "asyncpg.Pool[asyncpg.Record]":
        async with self._pool_lock:
            if self._pool is None:
                async with translated():
                    self._pool = await asyncpg.create_pool(
                        self._dsn,
                        min_size=0,
                        max_size=4,
                        timeout=5,
                        command_timeout=15,
                        server_settings=self._settings,
                    )
            return self._pool

    async def close(self) -> None:
        """Close what `transaction` opened; what does not close in 1 s is cut off."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await hang_up(pool)


async def hang_up(opened: "Connection | asyncpg.Pool[asyncpg.Record]") -> None:
    """Close, or cut off: a server that stands still answers no good-bye, and nobody waits for it."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await opened.close()
    except FOREIGN:  # TimeoutError is one
        opened.terminate()
