"""Opens a signer's CAs, again whenever their files change, and again when a hardware module comes back."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.camanifest import CA_CERTIFICATES, CA_MANIFEST
from watchword.handlers.errors import ConfigRefused, SignerUnavailable
from watchword.streams.changed_files import look_of
from watchword.streams.signer.authorities import Authorities

_log = structlog.get_logger(__name__)

_REST_S = 1.0
_PROBE_EVERY = 5
"""So many rests between two looks at the module."""

Open = Callable[[], Sequence[Authority]]
"""Opens all CAs, the one that issues first; raises `ConfigRefused` or `SignerUnavailable`."""

Probe = Callable[[], None]
"""Looks whether the key can still be reached; raises `SignerUnavailable`."""


class CaWatch:
    """The background work of a signer."""

    def __init__(
        self, directory: Path, authorities: Authorities, opens: Open, probe: Probe | None = None
    ) -> None:
        """Open nothing yet. `probe` is of a hardware module; files need none."""
        self._files = (directory / CA_MANIFEST, directory / CA_CERTIFICATES)
        self._authorities = authorities
        self._opens = opens
        self._probe = probe
        self._seen = look_of(self._files)

    async def begin(self) -> None:
        """Open the CAs; a module that is away is waited for later.

        Raises:
            ConfigRefused: they cannot be used.
        """
        try:
            self._authorities.exchange(await asyncio.to_thread(self._opens))
        except SignerUnavailable as error:
            self._authorities.away(str(error))
            _log.warning("CA key is out of reach", problem=str(error))

    async def keep(self) -> None:
        """Look for ever."""
        turn = 0
        while True:
            await asyncio.sleep(_REST_S)
            turn += 1
            seen = look_of(self._files)
            if seen != self._seen:
                self._seen = seen
                await self._open_again("CAs loaded again")
            elif self._authorities.problem() is not None:
                await self._open_again("CA key is in reach again")
            elif self._probe is not None and turn % _PROBE_EVERY == 0:
                await self._look(self._probe)

    async def _look(self, probe: Probe) -> None:
        try:
            await asyncio.to_thread(probe)
        except SignerUnavailable as error:
            self._authorities.away(str(error))
            _log.warning("CA key is out of reach", problem=str(error))

    async def _open_again(self, words: str) -> None:
        try:
            found = await asyncio.to_thread(self._opens)
        except SignerUnavailable as error:
            self._authorities.away(str(error))
        except ConfigRefused as error:
            # The ones that were loaded are as good as before; a key that is out of reach stays so.
            _log.error("CAs are not loaded again", problems=error.problems)
        except Exception:  # noqa: BLE001 - one bad hour must not end the looking
            _log.exception("CAs are not loaded again")
        else:
            self._authorities.exchange(found)
            _log.info(words, authorities=len(found))
