"""The only place that knows asyncpg."""
