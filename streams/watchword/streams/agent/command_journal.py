"""What this machine was told to do, on the disk before anything is done.

```text
<state>/commands/<id>/
├── command.json   the command as it was signed, but for its payload
├── payload        what the handler gets; gone when the command has ended
├── running        locked by whoever runs it (`supervisor`)
├── started        it was begun: never again
├── ended          what became of it
└── reported       the service knows
```

A command is run once because its folder is there before it is run, and `started` before its handler is. The
folder stays until the command has expired, and a day longer: until then the service may send it again.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import structlog

from watchword.handlers.crypto.documents import read_document
from watchword.schemas.canonical import canonical, unb64
from watchword.schemas.commands import Command, Report, Result
from watchword.schemas.errors import SchemaError
from watchword.schemas.times import parse_rfc3339
from watchword.streams.agent import atomic_files
from watchword.streams.agent.supervisor import ENDED, LOCK, PAYLOAD, STARTED

_log = structlog.get_logger(__name__)

_COMMAND, _REPORTED = "command.json", "reported"
_ID = re.compile(r"[0-9a-f-]{36}")
_KEPT = timedelta(days=1)

Stage = Literal["accepted", "running", "interrupted", "ended"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One command, and the folder of it."""

    folder: Path
    command: Command

    def stage(self) -> Stage:
        """Return how far it is."""
        if (self.folder / ENDED).exists():
            return "ended"
        if self._is_running():
            return "running"
        # Looked at again: whoever ran it may just have ended.
        if (self.folder / ENDED).exists():
            return "ended"
        return "interrupted" if (self.folder / STARTED).exists() else "accepted"

    def end(self, result: Result) -> None:
        """Write down that it will not be run, or not any more; raises `OSError`."""
        found = {"exitStatus": None, "result": result}
        atomic_files.write_file(self.folder / ENDED, canonical(found))

    def report(self) -> Report | None:
        """Return what the service has not been told yet; None if there is nothing."""
        if (self.folder / _REPORTED).exists():
            return None
        try:
            found = json.loads((self.folder / ENDED).read_bytes())
            return Report(
                id=self.command.id, result=found["result"], exit_status=found["exitStatus"]
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return Report(id=self.command.id, result="interrupted")

    def mark_reported(self) -> None:
        """Write down that the service knows; what the command said is not needed any more. Raises `OSError`."""
        atomic_files.write_file(self.folder / _REPORTED, b"")
        atomic_files.remove(self.folder / PAYLOAD)

    def _is_running(self) -> bool:
        try:
            descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


class CommandJournal:
    """The commands of one state directory."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made with the first command."""
        self._folder = folder

    def knows(self, command_id: str) -> bool:
        """Tell whether a command was accepted before."""
        return (self._folder / command_id).exists()

    def accept(self, command: Command) -> Entry:
        """Write a command down, whole or not at all; raises `OSError`."""
        atomic_files.make_folder(self._folder)
        folder = self._folder / command.id
        bare = command.model_copy(update={"payload": ""})
        files = {_COMMAND: bare.write(), PAYLOAD: unb64(command.payload)}
        atomic_files.write_folder(folder, files)
        return Entry(folder, bare)

    def entries(self) -> Iterator[Entry]:
        """Yield every command in the order of their ids, which is that of their sending."""
        if not self._folder.is_dir():
            return
        for folder in sorted(self._folder.iterdir()):
            if not _ID.fullmatch(folder.name):
                continue
            try:
                command = read_document(Command, (folder / _COMMAND).read_bytes())
            except (OSError, SchemaError) as error:
                _log.error("command cannot be read", folder=str(folder), error=type(error).__name__)
                continue
            yield Entry(folder, command)

    def sweep(self) -> None:
        """Delete what a crash left unfinished."""
        if self._folder.is_dir():
            atomic_files.sweep(self._folder)

    def forget(self, now: datetime) -> None:
        """Delete what the service knows the end of, and can send no more."""
        for entry in list(self.entries()):
            is_over = parse_rfc3339(entry.command.not_after) + _KEPT < now
            if is_over and (entry.folder / _REPORTED).exists():
                with suppress(OSError):
                    shutil.rmtree(entry.folder)
