"""The user that PostgreSQL runs as, and where that user can reach files.

PostgreSQL refuses to run as root. Started by root it runs as `nobody`, who may be unable to enter
the virtual environment or the data folder (under `/root`, say). No mode of a folder that we did
not make is ever changed for it: what is out of reach is put where it is in reach.
"""

import os
import pwd
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from watchword.streams.dev.errors import ServerFailed


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """An unprivileged user, by number."""

    uid: int
    gid: int


def server_account() -> ServerAccount | None:
    """Return the user to run a server as, or None for ourselves.

    Raises:
        ServerFailed: we are root, and the system has no user `nobody`.
    """
    if os.geteuid() != 0:
        return None
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        message = "started by root, PostgreSQL runs as the user nobody, which this system lacks"
        raise ServerFailed(message) from None
    return ServerAccount(uid=nobody.pw_uid, gid=nobody.pw_gid)


def can_reach(path: Path, account: ServerAccount | None) -> bool:
    """Tell whether the user may walk to `path`: search permission on it and on all above it."""
    if account is None:
        return True
    resolved = path.resolve()
    return all(_may_search(folder, account) for folder in (resolved, *resolved.parents))


def _may_search(path: Path, account: ServerAccount) -> bool:
    status = path.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def shelter(account: ServerAccount | None) -> Path:
    """Return a folder of ours, mode 0755, that the user can reach; it is made if it is missing.

    The name is predictable and the place may be open to everybody, so a folder that somebody else
    owns or may write to is refused.

    Raises:
        ServerFailed: there is no such place.
    """
    for base in (Path("/var/tmp"), Path(tempfile.gettempdir())):  # noqa: S108 - checked below
        if not base.is_dir() or not can_reach(base, account):
            continue
        folder = base / f"watchword-{os.geteuid()}"
        try:
            folder.mkdir(mode=0o755)
            # Whatever the umask is; this one folder is ours.
            folder.chmod(0o755)
        except FileExistsError:
            pass
        except OSError:
            continue
        status = folder.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if ours and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return folder
    message = "no temporary folder that is ours and that the user nobody can reach"
    raise ServerFailed(message)
