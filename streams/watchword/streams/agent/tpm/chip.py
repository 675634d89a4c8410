"""The TPM of this machine over tpm2-pytss: opened for a while, with nothing of ours in it afterwards."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from watchword.streams.agent.tpm.library import code_of, library, translated
from watchword.streams.agent.tpm.options import Options
from watchword.streams.agent.tpm.session import Session


@dataclass(frozen=True, slots=True)
class TssChip(Options):
    """See `watchword.handlers.attestors.tpm.prover.Chip`."""

    @contextmanager
    def opened(self) -> Generator[Session]:
        """Give the TPM with its keys at hand; all that was loaded is flushed afterwards.

        Raises:
            NoEvidence: it is away, or busy for too long.
            BadArgument: tpm2-pytss is not installed.
        """
        tss = library()
        with translated(tss):
            esapi = self.patience.ask(lambda: tss.ESAPI(self.tcti), code_of, full=_nothing)
            with esapi:
                session = Session(tss, esapi, self)
                try:
                    session.begin()
                    yield session
                finally:
                    session.end()


def _nothing() -> None:
    """Make no room: there is no context yet."""
