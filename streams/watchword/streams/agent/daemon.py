"""`agent run`: join if need be, then keep what the machine was given.

What is kept is a list of `Chore`s, each done now and then: fetching the published keys, looking at the
certificate's life, running the reload hook when the files have changed. Whatever else keeps a machine
in good standing is one more of them.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from watchword.handlers.prover import Prover
from watchword.schemas.times import parse_rfc3339
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.commander import Commander, CommandOptions
from watchword.streams.agent.identity import Identity, with_authorities
from watchword.streams.agent.join import join_locked
from watchword.streams.agent.joiner import JoinOptions
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.progress import Progress, Reporter
from watchword.streams.agent.reload_hook import ReloadHook
from watchword.streams.agent.renewer import Renewer
from watchword.streams.agent.revocations import refresh_crl, refresh_crls
from watchword.streams.agent.systemd import Notifier
from watchword.streams.agent.tpm.renewing import KeysInTpm
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import TrustKeeper

_log = structlog.get_logger(__name__)

_SECOND_SIGNAL = {signal.SIGTERM: 143, signal.SIGINT: 130}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to keep running. Times are seconds."""

    join: JoinOptions = field(default_factory=JoinOptions)
    reload_command: tuple[str, ...] = ()
    """Program and arguments, run when the files below `current` have changed; no shell is involved."""
    refresh_s: float = 3600.0
    """How often the published keys are fetched; spread by a quarter."""
    watch_s: float = 60.0
    """How often the certificate's life is looked at."""
    tpm: KeysInTpm | None = None
    """Where the node's key is, if it is in a TPM."""
    commands: CommandOptions | None = None
    """Whether the machine does what it is told, and how; None: it asks for no commands."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The process's variables: systemd's are read, the others are the reload command's."""


@dataclass(frozen=True, slots=True)
class Chore:
    """Something that is done now and then, for as long as the agent runs."""

    name: str
    every_s: float
    do: Callable[[], Awaitable[None]]
    """What it raises is logged, and it is done again at its next time."""


async def run(
    state: Path,
    transport: Transport,
    prover: Prover,
    options: RunOptions | None = None,
    *,
    pace: Pace | None = None,
) -> None:
    """Join if there is no identity, then keep it until SIGTERM or SIGINT; then return.

    A second signal ends the process at once. With `NOTIFY_SOCKET` in `options.environment` systemd is told
    when the agent is up (also while it waits to be admitted), what it is doing, and that it is alive.

    Raises:
        HandlersUnusable: others can change what commands would run.
        As `join`: a machine that is refused does not go on asking.
    """
    keystore = Keystore(state)
    with keystore.locked():
        daemon = _Daemon(
            keystore,
            transport,
            prover,
            options or RunOptions(),
            pace=pace or Pace(),
        )
        await _until_signal(daemon.work())


class _Daemon:
    def __init__(
        self,
        keystore: Keystore,
        transport: Transport,
        prover: Prover,
        options: RunOptions,
        *,
        pace: Pace,
    ) -> None:
        self._keystore = keystore
        self._transport = transport
        self._prover = prover
        self._options = options
        self._pace = pace
        self._clock = transport.clock
        self._trust = TrustKeeper(keystore, transport, pace=pace)
        self._hook = ReloadHook(
            keystore, options.reload_command, pace, environment=options.environment
        )
        self._renewer = Renewer(
            keystore,
            transport,
            self._trust,
            key_kind=options.join.key_kind,
            reporter=Reporter(),
            pace=pace,
            tpm=options.tpm,
        )
        self._commander = (
            None
            if options.commands is None
            else Commander(
                keystore, transport, self._trust, options.commands, pace=pace, tpm=options.tpm
            )
        )
        self._systemd = Notifier.of(options.environment)

    async def work(self) -> None:
        self._systemd.notify("READY=1", "STATUS=starting")
        watchdog = asyncio.create_task(self._systemd.keep_watchdog())
        try:
            result = await join_locked(
                self._keystore,
                self._transport,
                self._prover,
                self._options.join,
                reporter=Reporter(self._tell),
                pace=self._pace,
            )
            self._systemd.notify(f"STATUS=node {result.identity.node.node_id}")
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hook.keep())
                for chore in self._chores():
                    group.create_task(self._repeat(chore))
        finally:
            self._systemd.notify("STOPPING=1")
            watchdog.cancel()
            with suppress(asyncio.CancelledError):
                await watchdog

    def _tell(self, progress: Progress) -> None:
        words = _IN_WORDS[progress.step]
        self._systemd.notify(f"STATUS={words}, CSR SHA-256 {progress.csr_sha256}")

    def _chores(self) -> Sequence[Chore]:
        chores = [
            Chore("refresh", self._options.refresh_s, self._refresh),
            Chore("watch", self._options.watch_s, self._watch),
            Chore("renew", self._options.watch_s, self._renew),
        ]
        if self._commander is not None and self._options.commands is not None:
            every_s = self._options.commands.every_s
            chores.append(Chore("commands", every_s, self._commander.tend))
        return chores

    async def _repeat(self, chore: Chore) -> None:
        while True:
            try:
                await chore.do()
            except Exception:  # noqa: BLE001 - one bad hour must not end the agent
                _log.exception("chore failed", chore=chore.name)
            await self._pace.sleep(self._pace.spread(chore.every_s))

    async def _refresh(self) -> None:
        """Fetch what is published, and hand a new trust bundle on to whoever reads `current`."""
        trust = await self._trust.refresh()
        await refresh_crl(trust, self._keystore, self._transport)
        await refresh_crls(trust, self._keystore, self._transport)
        identity = self._keystore.identity()
        if identity is None or not trust.authorities:
            return
        with self._keystore.writing():
            changed = with_authorities(self._keystore.directory, identity, trust.authorities)
        if changed is not None:
            _log.info("trust bundle changed", identity=changed.folder.name)
            self._hook.poke()

    async def _renew(self) -> None:
        """Renew when it is time, and let services know."""
        identity = await self._renewer.tend()
        if identity is not None:
            self._systemd.notify(f"STATUS=node {identity.node.node_id}, renewed")
            self._hook.poke()

    async def _watch(self) -> None:
        """Say loudly what will stop working."""
        identity = self._keystore.identity()
        if identity is None:
            _log.error("identity is gone")
        elif self._clock.is_behind:
            _log.warning("the machine's clock is wrong", now=self._clock.now().isoformat())
        else:
            self._look_at_life(identity)

    def _look_at_life(self, identity: Identity) -> None:
        now = self._clock.now()
        node = identity.node
        if now >= parse_rfc3339(node.not_after):
            _log.error("certificate has expired", node_id=node.node_id, not_after=node.not_after)
        elif now >= parse_rfc3339(node.renew_after):
            _log.warning("certificate is due", node_id=node.node_id, not_after=node.not_after)


async def _until_signal(work: Awaitable[None]) -> None:
    """Do the work until it ends or a signal comes; then cancel it, and let it tidy up."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    is_stopping = False

    def stop(number: signal.Signals) -> None:
        nonlocal is_stopping
        if is_stopping:
            os._exit(_SECOND_SIGNAL[number])
        is_stopping = True
        _log.info("stopping", signal=number.name)
        task.cancel()

    for number in _SECOND_SIGNAL:
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not is_stopping:
            task.cancel()
            raise
    finally:
        for number in _SECOND_SIGNAL:
            loop.remove_signal_handler(number)


_IN_WORDS = {
    "resuming": "going on with a join",
    "no-evidence": "no evidence to be had yet",
    "sending": "asking to join",
    "resending": "asking to join again",
    "unreachable": "the service cannot be reached",
    "approval": "waiting for an operator",
    "unavailable": "the service cannot judge now",
}
