"""What a signal does to a process that is busy."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio
from watchword.streams.stop_signals import on_stop_signals

async def main():
    stop = asyncio.Event()
    with on_stop_signals(stop):
        print("up", flush=True)
        await stop.wait()
        print("draining", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_process_that_does_not_finish(number: signal.Signals) -> None:
    """An operator at a terminal is not made to look for SIGKILL."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.stdout.readline() == "draining\n"
        process.send_signal(number)

        assert process.wait(30) == 128 + number
