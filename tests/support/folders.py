"""Where tests put what lives longer than one test."""

import contextlib
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout."""

CACHE = ROOT / "build" / "test-cache"
"""What one test session may leave for the next."""


@contextlib.contextmanager
def server_folder(name: str) -> Generator[Path]:
    """Yield a new folder for a server's data, and delete it.

    pytest's own folders are closed to other users, and PostgreSQL may have to run as one.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"watchword-{name}-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
