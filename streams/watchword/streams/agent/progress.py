"""What a person may want to know while a join waits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog

from watchword.streams.agent.exchange import Exchange

_log = structlog.get_logger(__name__)

Step = Literal[
    "resuming", "no-evidence", "sending", "resending", "unreachable", "approval", "unavailable"
]


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a join."""

    step: Step
    csr_sha256: str
    """Hexadecimal: what an operator compares before approving."""
    why: str = ""
    wait_s: float | None = None
    """How long until something happens again, if it is known."""


Listener = Callable[[Progress], None]


def say_nothing(_: Progress) -> None:
    """Leave it at the log."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Logs each step, and tells whoever listens."""

    listener: Listener = say_nothing
    is_quiet: bool = False
    """For what happens every minute: only trouble is logged."""

    def tell(
        self, step: Step, exchange: Exchange, *, why: str = "", wait_s: float | None = None
    ) -> None:
        """Report a step of this exchange."""
        progress = Progress(step, exchange.csr_sha256.hex(), why, wait_s)
        log = _log.debug if self.is_quiet and step != "unreachable" else _log.info
        log(
            "request goes on" if self.is_quiet else "join goes on",
            step=step,
            csr_sha256=progress.csr_sha256,
            why=why,
            wait_s=wait_s,
        )
        self.listener(progress)
