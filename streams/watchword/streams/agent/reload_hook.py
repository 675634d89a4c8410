"""Telling the machine's services that key and certificate have changed.

The hook is owed from the moment a new set is current until the command has ended well; which set it
ended well for stands on the disk, so that a crash in between does not swallow it. The command may
therefore run twice for one set.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import structlog

from watchword.streams.agent.backoff import Backoff, Pace
from watchword.streams.agent.errors import StateUnusable
from watchword.streams.agent.identity import CURRENT
from watchword.streams.agent.keystore import Keystore

_log = structlog.get_logger(__name__)

_PATIENCE_S = 60.0
VARIABLE = "WATCHWORD_CURRENT"
"""In the command's environment: the path of the folder with the current files."""


_OF_SYSTEMD = frozenset(("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY"))
"""Variables that speak of us to systemd, and are nothing to the command."""


class ReloadHook:
    """Runs a command for each new set of files."""

    def __init__(
        self,
        keystore: Keystore,
        command: tuple[str, ...],
        pace: Pace,
        *,
        environment: Mapping[str, str],
    ) -> None:
        """Take the command's program and arguments (none: nothing to run), and its variables."""
        self._environment = {
            name: value for name, value in environment.items() if name not in _OF_SYSTEMD
        }
        self._keystore = keystore
        self._command = command
        self._pace = pace
        self._is_due = asyncio.Event()
        self._is_due.set()

    def poke(self) -> None:
        """Say that the files have changed."""
        self._is_due.set()

    async def keep(self) -> None:
        """Run the command whenever it is owed, again with back-off while it fails, until cancelled."""
        backoff = Backoff(self._pace)
        while self._command:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                is_done = await self._catch_up()
            except StateUnusable as error:
                _log.error("reload hook cannot be accounted for", error=str(error))
                is_done = False
            if is_done:
                backoff.reset()
            else:
                self._is_due.set()
                await backoff.wait()

    async def _catch_up(self) -> bool:
        """Run the command if it is owed for the current set; return whether nothing is owed any more."""
        identity = self._keystore.identity()
        if identity is None:
            return True
        owed = identity.folder.name.encode()
        if self._keystore.read("reloaded") == owed:
            return True
        if not await self._run():
            return False
        self._keystore.write("reloaded", owed)
        return True

    async def _run(self) -> bool:
        """Return whether the command ended well in time; its output goes where ours does."""
        current = self._keystore.directory / CURRENT
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment | {VARIABLE: str(current)},
            )
        except OSError as error:
            _log.error("reload hook cannot be run", error=error.strerror)
            return False
        try:
            async with asyncio.timeout(_PATIENCE_S):
                status = await process.wait()
        except TimeoutError:
            _log.error("reload hook took too long", after_s=_PATIENCE_S)
            status = -1
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if status != 0:
            _log.error("reload hook failed", status=status)
            return False
        _log.info("reload hook ran")
        return True
