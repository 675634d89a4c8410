"""Files and folders that are there whole or not at all, on the disk and not only in its cache.

Private by construction: files are 0600 and folders 0700 from the moment they exist, whatever the
umask. A name is given last, after what it names has reached the disk, and the folder that holds
the name is flushed after that; so a machine that loses power has the old state or the new one.
"""

import os
import secrets
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700

_UNFINISHED = ".new-"


def make_folder(folder: Path) -> None:
    """Make the folder, and what is above it, for its owner alone; tighten one that is there.

    Raises:
        OSError: it cannot be made, or is not ours.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    folder.chmod(FOLDER_MODE)


def write_file(path: Path, content: bytes) -> None:
    """Put the content in the file's place; readers see the old one or the new one.

    Raises:
        OSError: nothing has changed then.
    """
    beside = path.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
    try:
        _write_new(beside, content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a new folder with these files; all of them are there as soon as the folder is.

    Raises:
        OSError: nothing has changed then, also because a folder of that name was there.
    """
    beside = folder.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
    try:
        beside.mkdir(mode=FOLDER_MODE)
        beside.chmod(FOLDER_MODE)
        for name, content in files.items():
            _write_new(beside / name, content)
        sync_folder(beside)
        beside.rename(folder)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def point(link: Path, target: str) -> None:
    """Make the symbolic link name this target, in one step; `target` is relative to the link."""
    beside = link.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
    try:
        beside.symlink_to(target)
        beside.replace(link)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(link.parent)


def remove(path: Path) -> None:
    """Remove a file, link or folder in one step, if it is there: its name goes first."""
    beside = path.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
    try:
        path.rename(beside)
    except FileNotFoundError:
        return
    sync_folder(path.parent)
    _delete(beside)


def sweep(folder: Path) -> None:
    """Delete what a crash left unfinished directly in the folder."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        _delete(path)


def sync_folder(folder: Path) -> None:
    """Flush the folder's names to the disk."""
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def _write_new(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with _opened(path, flags) as descriptor:
        os.fchmod(descriptor, FILE_MODE)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
