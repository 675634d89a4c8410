"""Which of PostgreSQL's errors are tried again, and which halve a batch."""

import asyncpg
import pytest

from watchword.handlers.errors import StoreRejected, StoreUnavailable
from watchword.handlers.store.translate import translate

DATA = (
    asyncpg.CardinalityViolationError,
    asyncpg.CharacterNotInRepertoireError,
    asyncpg.UniqueViolationError,
    asyncpg.UndefinedColumnError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.StatementTooComplexError,
)

AWAY = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.AdminShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InFailedSQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)


@pytest.mark.parametrize("error", DATA)
def test_what_fails_again_with_the_same_data_is_not_tried_for_ever(
    error: type[asyncpg.PostgresError],
) -> None:
    """One request's content must not stop its partition."""
    assert isinstance(translate(error("secret")), StoreRejected)


@pytest.mark.parametrize("error", [*AWAY, OSError, EOFError, TimeoutError])
def test_what_passes_by_is_never_blamed_on_a_request(error: type[Exception]) -> None:
    """An outage must not answer `UNAVAILABLE` to machines that did nothing wrong."""
    assert isinstance(translate(error("secret")), StoreUnavailable)


def test_values_of_a_statement_are_in_no_message() -> None:
    """The message of a violated constraint quotes the row."""
    assert "secret" not in str(translate(asyncpg.UniqueViolationError("Key (id)=(secret)")))
