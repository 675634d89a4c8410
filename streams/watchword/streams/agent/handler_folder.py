"""The folder of handlers: one executable for each kind of command, named as the kind.

Whoever can write there decides what a command does on this machine. So the folder, everything above it and
each handler belong to root or to the agent's user, and nobody else may write to them.
"""

import os
import stat
from pathlib import Path

from watchword.streams.agent.errors import HandlersUnusable

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class HandlerFolder:
    """Finds handlers. Everything is looked at again each time: the folder may change while the agent runs."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; nothing is looked at yet."""
        self._folder = folder

    def check(self) -> Path:
        """Return the folder without links, if only those who may can write to it.

        Raises:
            HandlersUnusable: it is missing, or somebody else can change what is run.
        """
        try:
            folder = self._folder.resolve(strict=True)
            if not folder.is_dir():
                message = f"{folder}: not a folder"
                raise HandlersUnusable(message)
            for path in (folder, *folder.parents):
                status = path.stat()
                # In a sticky folder nobody takes away or renames what is another's.
                is_open = status.st_mode & _OTHERS and (
                    path == folder or not status.st_mode & stat.S_ISVTX
                )
                if status.st_uid not in _trusted() or is_open:
                    message = f"{path}: others can write here, and so decide what commands do"
                    raise HandlersUnusable(message)
        except OSError as error:
            message = f"{self._folder}: {error.strerror or 'cannot be read'}"
            raise HandlersUnusable(message) from None
        return folder

    def find(self, kind: str) -> Path | None:
        """Return the handler of a kind; None if there is none.

        Raises:
            HandlersUnusable: others can change the folder, or the handler.
        """
        path = self.check() / kind
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            message = f"{path}: {error.strerror or 'cannot be read'}"
            raise HandlersUnusable(message) from None
        if not stat.S_ISREG(status.st_mode):
            message = f"{path}: not a file of its own (no link, no folder)"
            raise HandlersUnusable(message)
        if status.st_uid not in _trusted() or status.st_mode & _OTHERS:
            message = f"{path}: others can write to it, and so decide what commands do"
            raise HandlersUnusable(message)
        return path if os.access(path, os.X_OK) else None


def _trusted() -> frozenset[int]:
    return frozenset((0, os.geteuid()))
