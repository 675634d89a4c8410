"""An event loop under a watchdog: `python -m tests.support.watched_loop WAY`. It says `ready`, and then does one thing.

`sleep` blocks the loop by a call that lets other threads run; `regex` by one that keeps the interpreter; `turn`
goes on turning, until its standard input is closed.
"""

import asyncio
import re
import sys
import time

from watchword.streams.logs import configure
from watchword.streams.worker.watchdog import Watchdog

LIMIT_S = 0.5


async def main(way: str) -> None:
    """Do what the argument says."""
    configure()
    watchdog = Watchdog(LIMIT_S)
    watchdog.start()
    await asyncio.sleep(0.1)
    print("ready", flush=True)  # noqa: T201 - a program's output
    match way:
        case "sleep":
            await asyncio.create_task(_sleeps(), name="verify acme-hello")
        case "regex":
            re.fullmatch(r"(a+)+b", "a" * 64)
        case _:
            await asyncio.to_thread(sys.stdin.read)
    watchdog.stop()


async def _sleeps() -> None:
    time.sleep(3600)  # noqa: ASYNC251 - on purpose


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
