"""Files whose content is secret: written for their owner alone, and read only if it stayed so."""

import os
import secrets
import stat
from pathlib import Path

from watchword.handlers.errors import ConfigRefused

_MAX_BYTES = 64 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OWNER_ONLY = 0o600
_EVERYONE_READS = 0o644


def make_private_folder(folder: Path) -> None:
    """Make the folder, mode 0700, unless it is there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_new(path: Path, content: bytes, *, public: bool = False) -> bool:
    """Write a file, mode 0600, whole or not at all; tell False if one was there already.

    An existing file is never touched. `public` makes the mode 0644.
    """
    beside = _write_beside(path, content, public=public)
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink()
    _sync_folder(path.parent)
    return True


def replace(path: Path, content: bytes) -> None:
    """Write a file of mode 0644 in the place of the one that is there; readers see one or the other."""
    _write_beside(path, content, public=True).replace(path)
    _sync_folder(path.parent)


def read_private(path: Path) -> bytes:
    """Return the content of a file that only its owner can read.

    Raises:
        ConfigRefused: the file is missing, too large, or open to its group or others.
    """
    try:
        with path.open("rb") as file:
            # Of the open file, not of the name: nobody can swap it in between.
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & _OTHERS:
                problem = (
                    f"{path} holds a private key, and others than its owner may use it"
                    f" (mode {mode:04o}); chmod 600, and think of the key as known"
                )
                raise ConfigRefused([problem])
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigRefused([f"{path}: {error.strerror or 'cannot be read'}"]) from None
    if len(content) > _MAX_BYTES:
        raise ConfigRefused([f"{path} is too large for a key"])
    return content


def read_public(path: Path) -> bytes:
    """Return the content of a file that anybody may read; raises `ConfigRefused`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigRefused([f"{path}: {error.strerror or 'cannot be read'}"]) from None
    return content


def _write_beside(path: Path, content: bytes, *, public: bool) -> Path:
    """Write the content to a new file in the same folder, down to the disk."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as file:
        # Not left to the umask, in either direction.
        os.fchmod(descriptor, _EVERYONE_READS if public else _OWNER_ONLY)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    return beside


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
