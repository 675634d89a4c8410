"""A worker's keys, loaded again when their folder has changed, and told to the others by the database."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog
from prometheus_client import Counter, Gauge

from watchword.handlers.crypto.camanifest import CA_MANIFEST
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.crypto.keyfiles import load_worker_keys
from watchword.handlers.crypto.keymanifest import MANIFEST
from watchword.handlers.crypto.worker_keys import WorkerKeys
from watchword.handlers.errors import ConfigRefused, WatchwordError
from watchword.handlers.store import key_holders
from watchword.handlers.store.connection import Database
from watchword.streams.changed_files import look_of

_log = structlog.get_logger(__name__)

_LOOK_S = 1.0
_TELL_S = 30.0

RELOADS = Counter(
    "watchword_key_reloads", "Times that the folder of keys was loaded again.", ["outcome"]
)
VERSION = Gauge("watchword_key_version", "Version of the keys that are in use here.")


class KeyWatch:
    """The background work of one worker. What cannot be loaded changes nothing: the keys before it stay in use."""

    def __init__(
        self,
        directory: Path,
        keys: WorkerKeys,
        crypto: JoinCrypto,
        database: Database,
        *,
        holder: str,
    ) -> None:
        """Take the keys that are in use in `crypto`; `holder` is the worker's name."""
        self._directory = directory
        self._files = (directory / MANIFEST, directory / CA_MANIFEST)
        # Of before the keys were read, or of after: then they are read once too often.
        self._seen: object = None
        self._keys = keys
        self._crypto = crypto
        self._database = database
        self._holder = holder
        self._tell_at = 0.0
        self._try_again_at = float("inf")
        VERSION.set(keys.version)

    async def look(self) -> None:
        """Load the keys if their folder has changed, and tell what is held if it is time."""
        seen = look_of(self._files)
        if seen != self._seen or time.monotonic() >= self._try_again_at:
            self._seen, self._try_again_at = seen, float("inf")
            await self._load()
        if time.monotonic() >= self._tell_at:
            await self._tell()

    async def _load(self) -> None:
        try:
            found = await asyncio.to_thread(load_worker_keys, self._directory)
            if found.trust_domain != self._keys.trust_domain:
                problem = f"{self._directory}: the keys are for {found.trust_domain} now"
                raise ConfigRefused([problem])  # noqa: TRY301 - told like the others
        except ConfigRefused as error:
            RELOADS.labels("refused").inc()
            _log.error("keys are not loaded again", problems=error.problems)
            # What was wrong may have been the mode of a file, of which the manifest says nothing.
            self._try_again_at = time.monotonic() + _TELL_S
            return
        if (found.version, found.kids, found.signing.kid) != (
            self._keys.version,
            self._keys.kids,
            self._keys.signing.kid,
        ):
            _log.info("keys loaded again", version=found.version, signing=found.signing.kid)
        RELOADS.labels("loaded").inc()
        self._crypto.take_over(found.decryption, found.signing, found.states)
        self._keys = found
        VERSION.set(found.version)
        self._tell_at = 0.0

    async def _tell(self) -> None:
        try:
            async with self._database.transaction() as connection:
                await key_holders.hold(
                    connection, self._holder, self._keys.kids, self._keys.version
                )
        except WatchwordError as error:
            _log.info("cannot tell which keys are held", error=str(error))
            return
        self._tell_at = time.monotonic() + _TELL_S

    async def keep(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - one bad hour must not end the looking
                _log.exception("cannot look at the keys")
            await asyncio.sleep(_LOOK_S)

    async def leave(self) -> None:
        """Say that nothing is held here any more; a database that is away finds out by itself."""
        with suppress(WatchwordError):
            async with self._database.transaction() as connection:
                await key_holders.let_go(connection, self._holder)


@asynccontextmanager
async def watching_keys(watch: KeyWatch) -> AsyncGenerator[None]:
    """Keep looking inside the block."""
    looking = asyncio.create_task(watch.keep())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        await watch.leave()
