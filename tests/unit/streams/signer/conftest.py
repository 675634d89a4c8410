"""A signer that runs, and whoever calls it."""

import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from tests.support.signers import Running
from watchword.streams.signer.client import SocketSigner


@pytest.fixture
def path() -> Generator[Path]:
    """A socket's path has at most 107 bytes, which pytest's own folders may exceed."""
    with tempfile.TemporaryDirectory(prefix="ww-") as folder:
        yield Path(folder) / "signer.sock"


@pytest.fixture
async def running(path: Path) -> AsyncGenerator[Running]:
    made = Running(path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def signer(running: Running) -> AsyncGenerator[SocketSigner]:
    made = SocketSigner(running.path)
    yield made
    await made.close()
