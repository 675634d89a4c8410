"""A small storm: workers, a relay and PostgreSQL die under load, and the judge finds nothing."""

import asyncio
import os
import sys

import pytest

from tests.support.folders import ROOT

_FAULTS = (
    "worker killed before commit",
    "worker killed after commit",
    "worker killed after response",
    "relay killed after send",
    "PostgreSQL crashed",
)
_ENOUGH_S = 300


@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.timeout(_ENOUGH_S + 20)
async def test_nothing_is_lost_doubled_or_wrong_whatever_dies() -> None:
    """The promises are about days when something dies; `make faults` has more of those."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults",
        "--small",
        "--seconds=10",
        f"--run=storm-{os.getpid()}",
        f"--only={','.join(_FAULTS)}",
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_ENOUGH_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    said = output.decode()
    assert process.returncode == 0, said[-6000:]
    assert said.rstrip().endswith("0 lost, 0 duplicated, 0 wrong"), said[-6000:]
