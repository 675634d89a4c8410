"""Doing what the service tells this node: each command once, and its end reported.

```text
  ask ──▶ accepted, on the disk ──▶ started ──▶ ended ──▶ reported with the next question
               │                       │
               │                       └── the machine went down: interrupted, and never begun again
               └── too late, not for us, no handler: ended, and never begun
```

Whoever dies between accepting and starting a command leaves it to the next agent; whoever dies after that
leaves it to the supervisor, which is a process of its own. One command at a time, in the order of their ids.
"""

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import structlog

from watchword.handlers.kinds import permits
from watchword.schemas.commands import MAX_REPORTS, Reports, Result
from watchword.streams import failpoints
from watchword.streams.agent import supervisor
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.command_journal import CommandJournal, Entry
from watchword.streams.agent.errors import HandlersUnusable
from watchword.streams.agent.fetcher import Fetcher, is_over
from watchword.streams.agent.handler_folder import HandlerFolder
from watchword.streams.agent.identity import Identity
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.tpm.renewing import KeysInTpm
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import TrustKeeper

_log = structlog.get_logger(__name__)

_AFTER_REFUSAL_S = 3600.0
"""How long nothing is asked after a no: it will hardly become a yes, and each is an event somebody reads."""

_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Whether, and how, this machine does what it is told. Times are seconds."""

    handlers: Path
    """The folder with one executable for each kind."""
    every_s: float = 60.0
    """How often the service is asked; spread by a quarter."""
    limit_s: float = 300.0
    """How long a handler may take before it is stopped."""


class Commander:
    """Fetches and runs commands in a state directory that the caller has locked."""

    def __init__(
        self,
        keystore: Keystore,
        transport: Transport,
        trust: TrustKeeper,
        options: CommandOptions,
        *,
        pace: Pace,
        tpm: KeysInTpm | None = None,
    ) -> None:
        """Take the parts; `tpm` is for a node whose key is in it.

        Raises:
            HandlersUnusable: others can change what would be run.
        """
        self._keystore = keystore
        self._clock = transport.clock
        self._pace = pace
        self._options = options
        self._handlers = HandlerFolder(options.handlers)
        self._handlers.check()
        self._journal = CommandJournal(keystore.directory / "commands")
        self._fetcher = Fetcher(keystore, transport, trust, pace=pace, tpm=tpm)
        self._quiet_until_s = 0.0
        with keystore.writing():
            self._journal.sweep()

    async def tend(self) -> None:
        """Run what was accepted, ask for more, and report, until there is nothing left to do now.

        Raises:
            StateUnusable: the disk, or a key that cannot sign here.
        """
        identity = self._keystore.identity()
        if identity is None:
            return
        await self._work_off(identity)
        while self._pace.monotonic() >= self._quiet_until_s:
            identity = self._keystore.identity() or identity
            if not await self._fetch(identity):
                break
            await self._work_off(identity)
        if not self._clock.is_guess:
            self._journal.forget(self._clock.now())

    async def _fetch(self, identity: Identity) -> bool:
        """Ask once; return whether there is something to do or to tell at once."""
        ended = [(entry, entry.report()) for entry in self._journal.entries()]
        told = [(entry, report) for entry, report in ended if report is not None][:MAX_REPORTS]
        reports = Reports(items=tuple(report for _, report in told))
        found = await self._fetcher.fetch(identity, reports)
        if found.outcome != "commands":
            return self._refused(found.outcome, identity)
        with self._keystore.writing():
            for entry, _ in told:
                entry.mark_reported()
            is_new = False
            for command in found.commands:
                if self._journal.knows(command.id):
                    continue
                self._journal.accept(command)
                is_new = True
                _log.info("command accepted", command=command.id, kind=command.kind)
        failpoints.hit("command-accepted")
        # That there are more is no reason while nothing of these has got any further.
        is_further = is_new or (bool(told) and found.more)
        return is_further or any(entry.report() for entry in self._journal.entries())

    def _refused(self, outcome: str, identity: Identity) -> bool:
        """Say so, and wait long; return whether to ask again, because the certificate was renewed meanwhile."""
        now = self._keystore.identity()
        if now is not None and now.node.serial != identity.node.serial:
            return True
        if outcome != "unavailable":
            self._quiet_until_s = self._pace.monotonic() + self._pace.spread(_AFTER_REFUSAL_S)
            _log.error("commands refused", node_id=identity.node.node_id, outcome=outcome)
        return False

    async def _work_off(self, identity: Identity) -> None:
        """Run what was accepted and not begun; wait for nothing that an agent before this one has begun."""
        for entry in list(self._journal.entries()):
            match entry.stage():
                case "running":
                    return
                case "interrupted":
                    self._end(entry, "interrupted")
                case "accepted":
                    await self._do(entry, identity)
                case "ended":
                    pass

    async def _do(self, entry: Entry, identity: Identity) -> None:
        command = entry.command
        if not self._clock.is_guess and is_over(command, self._clock.now()):
            self._end(entry, "too-late")
            return
        if not permits(identity.node.allowed_kinds, command.kind):
            self._end(entry, "not-for-us")
            return
        try:
            handler = self._handlers.find(command.kind)
        except HandlersUnusable as error:
            _log.error("handler is not run", kind=command.kind, error=str(error))
            handler = None
        if handler is None:
            self._end(entry, "no-handler")
            return
        failpoints.hit("command-before-run")
        await self._run(entry, handler, identity)
        report = entry.report()
        _log.info(
            "command ended",
            command=command.id,
            kind=command.kind,
            result=None if report is None else report.result,
            exit_status=None if report is None else report.exit_status,
        )

    def _end(self, entry: Entry, result: Result) -> None:
        _log.warning(
            "command not done", command=entry.command.id, kind=entry.command.kind, result=result
        )
        with self._keystore.writing():
            entry.end(result)

    async def _run(self, entry: Entry, handler: Path, identity: Identity) -> None:
        """Have the supervisor run the handler, and wait for it; if we end before, it goes on."""
        with self._keystore.writing():
            process = self._supervised(entry, handler, identity.node.node_id)
        failpoints.hit("command-started")
        while process.poll() is None:  # noqa: ASYNC110 - no event tells of a process that is not asyncio's
            await asyncio.sleep(_LOOK_S)
        if entry.stage() == "accepted":
            # Whatever kept the supervisor from it: this command is not tried for ever.
            self._end(entry, "interrupted")

    def _supervised(self, entry: Entry, handler: Path, node_id: str) -> "subprocess.Popen[bytes]":
        """Start the supervisor. Not as asyncio does: it would end with us."""
        return subprocess.Popen(  # noqa: S603 - no shell, and nothing in it but paths and checked names
            [
                sys.executable,
                "-I",
                supervisor.__file__,
                str(entry.folder.absolute()),
                str(handler),
                str(self._options.limit_s),
                node_id,
                entry.command.id,
                entry.command.kind,
            ],
            stdin=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
