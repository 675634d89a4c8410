"""Which exit code says what; scripts decide by them.

0 done, 1 failed, 2 usage or configuration, 3 not found, 4 conflict, 5 denied, 69 something needed is
away, 75 try again; 130 and 143 ended by a signal.
"""

from watchword.handlers.errors import (
    BadArgument,
    ConfigRefused,
    Conflict,
    Denied,
    NotFound,
    Unavailable,
    WatchwordError,
)

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
DENIED = 5
UNAVAILABLE = 69
TRY_AGAIN = 75
INTERRUPTED = 130

_BY_KIND: tuple[tuple[type[BaseException], int], ...] = (
    (BadArgument, USAGE),
    (ConfigRefused, USAGE),
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (Denied, DENIED),
    (Unavailable, UNAVAILABLE),
    (TimeoutError, TRY_AGAIN),
    (KeyboardInterrupt, INTERRUPTED),
)


def exit_code(error: BaseException) -> int:
    """Return the code for what a command raised; an error may bring its own as `exit_code`."""
    own = getattr(error, "exit_code", None)
    if isinstance(error, WatchwordError) and isinstance(own, int):
        return own
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), FAILED)
