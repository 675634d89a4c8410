"""Which of a TPM's errors pass by themselves (TPM 2.0 Library, Part 2, 6.6), and how long to wait for that."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

_Result = TypeVar("_Result")

_LAYER = 0xFF0000
_TCTI = 10 << 16
_TPM_LAYERS = (0, 11 << 16, 12 << 16)
"""The TPM's own, and the two layers of resource managers that pass them on (TSS 2.0 Overview, 2.4)."""

BUSY = {
    0x902: "TPM_RC_OBJECT_MEMORY",
    0x903: "TPM_RC_SESSION_MEMORY",
    0x904: "TPM_RC_MEMORY",
    0x905: "TPM_RC_SESSION_HANDLES",
    0x906: "TPM_RC_OBJECT_HANDLES",
    0x908: "TPM_RC_YIELDED",
    0x909: "TPM_RC_CANCELED",
    0x90A: "TPM_RC_TESTING",
    0x920: "TPM_RC_NV_RATE",
    0x922: "TPM_RC_RETRY",
    0x923: "TPM_RC_NV_UNAVAILABLE",
}
"""Warnings that are gone when the TPM, or whoever else uses it, has finished what it does."""
FULL = frozenset((0x902, 0x904, 0x906))
"""Those of them that loaded objects are the reason of."""
_BUSY_TCTI = frozenset((0x9, 0xA))
"""TRY_AGAIN, and IO_ERROR: another process has the device open."""

_TRIES = 12
_FIRST_S, _CAP_S = 0.05, 1.0


def warning_of(code: int) -> int | None:
    """Return which of `BUSY` a response code is, whichever layer says it; None for any other."""
    number = code & 0xFFFF
    return number if code & _LAYER in _TPM_LAYERS and number in BUSY else None


def is_passing(code: int) -> bool:
    """Tell whether the same command may succeed a moment later."""
    if code & _LAYER == _TCTI:
        return code & 0xFFFF in _BUSY_TCTI
    return warning_of(code) is not None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a busy TPM is asked again: a dozen times, about eight seconds in all."""

    tries: int = _TRIES
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def waits(self) -> Iterator[float]:
        """Give the waits between tries, in seconds; they double."""
        wait = _FIRST_S
        for _ in range(self.tries - 1):
            yield wait
            wait = min(2 * wait, _CAP_S)

    def ask(
        self,
        command: Callable[[], _Result],
        code_of: Callable[[Exception], int | None],
        *,
        full: Callable[[], None],
    ) -> _Result:
        """Return what a command gives, asked again while its error is a passing one.

        `code_of` returns the response code of an exception, or None if it is no TPM's. `full` is called
        before another try where the TPM has no room for objects.
        """
        for wait in self.waits():
            try:
                return command()
            except Exception as error:
                code = code_of(error)
                if code is None or not is_passing(code):
                    raise
                if warning_of(code) in FULL:
                    full()
            self.sleep(wait)
        return command()
