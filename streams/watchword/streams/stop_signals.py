"""SIGTERM and Ctrl-C: the first asks a process to drain, a second one ends it at once."""

import asyncio
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signals(stopping: asyncio.Event) -> Generator[None]:
    """Have the signals set this event, inside the block and where signals can be had: the main thread.

    A second signal ends the process with 128 and its number (130, 143), without any tidying: what was
    not acknowledged comes again.
    """
    loop = asyncio.get_running_loop()
    is_main = threading.current_thread() is threading.main_thread()
    numbers = _SIGNALS if is_main else ()
    for number in numbers:
        loop.add_signal_handler(number, partial(_take, number, stopping))
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _take(number: signal.Signals, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        os._exit(128 + number)
    stopping.set()
