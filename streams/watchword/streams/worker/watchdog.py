"""Ends a worker whose event loop is blocked, and says by what.

Code of others runs in that loop. While it blocks the loop nothing is judged, no heartbeat is sent and no time limit
is looked at; so somebody else has to look: a thread. A thread of Python's needs the interpreter's lock, which code in C may
keep (a regular expression that has gone astray does). Then a timer of the kernel's ends the process, which
counts what the process computes and not the time: a process that was paused has done nothing wrong.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from types import FrameType

import structlog

from watchword.handlers.join.patience import verified_by
from watchword.streams.worker.exits import ExitCode, Fatal, exit_now

_log = structlog.get_logger(__name__)

_LOOKS = 10
"""The limit is counted in so many looks. One that took longer was a pause of the whole process, and counts no more."""

_KEPT_FACTOR = 4
"""After computing for so many times the limit, without one turn of the loop, the kernel ends the process."""

_SAY_S = 1.0
"""How long saying so may take: whoever blocks the loop may hold the lock of the log."""

_FRAMES = 24


class Watchdog:
    """A thread that asks the loop for a sign of life, again and again."""

    def __init__(self, limit_s: float, *, fatal: Fatal = exit_now) -> None:
        """Watch nothing yet; `limit_s` is how long the loop may be silent."""
        self._limit_s = limit_s
        self._fatal = fatal
        self._turned = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched = 0

    def start(self) -> None:
        """Watch the loop that runs here."""
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        # Written by C code that needs no lock: the stack, and then the process ends as the signal says.
        with suppress(OSError, ValueError):
            faulthandler.register(signal.SIGVTALRM, file=sys.stderr, all_threads=True, chain=True)
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(self._limit_s)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.unregister(signal.SIGVTALRM)

    def _watch(self) -> None:
        look_s = self._limit_s / _LOOKS
        silent_s = 0.0
        while not self._ended.is_set():
            self._turned = False
            if not self._asked():
                return
            began = time.monotonic()
            self._ended.wait(look_s)
            silent_s = 0.0 if self._turned else silent_s + min(time.monotonic() - began, 2 * look_s)
            if silent_s >= self._limit_s and not self._ended.is_set():
                self._end(silent_s)

    def _asked(self) -> bool:
        try:
            assert self._loop is not None  # noqa: S101 - `start` was called
            self._loop.call_soon_threadsafe(self._turn)
        except RuntimeError:
            return False  # The loop is closed.
        return True

    def _turn(self) -> None:
        self._turned = True
        signal.setitimer(signal.ITIMER_VIRTUAL, _KEPT_FACTOR * self._limit_s)

    def _end(self, silent_s: float) -> None:
        """Say who blocks the loop, and end the process."""
        overdue = threading.Timer(_SAY_S, os._exit, (ExitCode.STALLED,))
        overdue.daemon = True
        overdue.start()
        _log.critical(
            "the event loop is blocked",
            seconds=round(silent_s, 1),
            attestor=self._attestor(),
            stack=stack_of(sys._current_frames().get(self._watched)),  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - there is no other way to see another thread's
        )
        self._fatal(ExitCode.STALLED)

    def _attestor(self) -> str | None:
        """Return whose verification runs, if one does."""
        task = asyncio.current_task(self._loop)
        return None if task is None else verified_by(task.get_name())


def stack_of(frame: FrameType | None) -> list[str]:
    """Return where a thread is, innermost first: files, lines and functions, and no values."""
    if frame is None:
        return []
    found = traceback.StackSummary.extract(
        traceback.walk_stack(frame), limit=_FRAMES, lookup_lines=False
    )
    return [f"{_short(one.filename)}:{one.lineno} {one.name}" for one in found]


def _short(path: str) -> str:
    return "/".join(path.rsplit("/", 3)[-3:])
