"""Whether files have changed since they were last looked at, by what the file system says of them."""

from collections.abc import Iterable
from pathlib import Path

Look = tuple[tuple[int, int, int] | None, ...]
"""Of each file: inode, size in bytes, time of the last change in nanoseconds; None if there is none."""


def look_of(files: Iterable[Path]) -> Look:
    """Return what the file system says of these files now; two that differ are of different contents."""
    return tuple(_look(file) for file in files)


def _look(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
