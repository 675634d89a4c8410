"""Telling systemd how we are (sd_notify(3)); nothing happens where nobody listens."""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

_MICRO = 1_000_000


class Notifier:
    """Sends assignments (`READY=1`, `STATUS=…`) to systemd."""

    def __init__(self, address: str = "", *, watchdog_s: float | None = None) -> None:
        """Take the socket's path (a leading @ stands for the abstract namespace) and the watchdog's period."""
        self._address = address
        self._watchdog_s = watchdog_s

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Read `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` as systemd sets them."""
        period = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched = period.isdecimal() and int(period) > 0 and is_ours
        return cls(
            environment.get("NOTIFY_SOCKET", ""),
            watchdog_s=int(period) / _MICRO if watched else None,
        )

    def notify(self, *lines: str) -> None:
        """Send these assignments, if anybody listens."""
        if not self._address.startswith(("/", "@")):
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0)  # a full queue must not stop the agent
            sock.sendto("\n".join(lines).encode(), address)

    async def keep_watchdog(self) -> None:
        """Say twice in each period that the event loop turns; return at once if nobody watches."""
        while self._watchdog_s is not None:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / 2)
