"""The seam between the agent and the ways a machine can prove itself: what a verifier's other half does.

Rules for a prover. It runs on the joining machine and knows no server part. It is asked for fresh
evidence in every round that begins anew, and nothing of an earlier round holds then. A source that
is away, busy or not there yet is `NoEvidence`, never a crash and never half a proof. It keeps
secrets out of its errors: their text is shown and logged.

A package registers what makes its prover as an entry point of the group `watchword.provers`, under the attestor's
id: a `MakeProver`. `watchword agent join --attestor <id>` calls it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from watchword.handlers.errors import BadArgument, WatchwordError
from watchword.schemas.ids import Role


class NoEvidence(WatchwordError):
    """There is no evidence to be had now.

    A local matter: nothing is sent, and the agent asks the prover again after a while.
    """


class Prover(Protocol):
    """Makes evidence of one kind."""

    @property
    def id(self) -> str:
        """The id of the attestor whose verifier reads it; a challenge goes to no other prover."""
        ...

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return fresh evidence for the first round, in the attestor's own form.

        `csr_sha256` is 32 bytes, the SHA-256 of the DER of the machine's CSR: evidence that can be
        bound to it is.

        Raises:
            NoEvidence: there is none now.
        """
        ...

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Return the evidence of the next round: the answer to a challenge of this prover's attestor.

        Raises:
            NoEvidence: it cannot be answered now; the agent begins anew.
        """
        ...


ProverSettings = Mapping[str, object]
"""What the machine's operator says to a prover: `--option name=value`, always text, and the values of a TOML file."""

MakeProver = Callable[[ProverSettings], Prover]
"""Makes a prover of its settings; raises `BadArgument` if they are not what it needs. It does not look for evidence yet."""


def text_setting(settings: ProverSettings, name: str) -> str:
    """Return a setting that has to be there, and text.

    Raises:
        BadArgument: it is not.
    """
    value = settings.get(name)
    if not isinstance(value, str) or not value:
        message = f"the prover needs a setting {name!r}: --option {name}=…, or in --prover-settings"
        raise BadArgument(message)
    return value


def read_source(path: Path, at_most: int) -> bytes:
    """Return what a file holds, `at_most` bytes of it and one more, so that a longer one shows.

    Raises:
        NoEvidence: it cannot be read, or is empty: it may still be written.
    """
    try:
        with path.open("rb") as file:
            content = file.read(at_most + 1)
    except OSError as error:
        message = f"{path}: {error.strerror or 'cannot be read'}"
        raise NoEvidence(message) from None
    if not content.strip():
        message = f"{path} is empty"
        raise NoEvidence(message)
    return content
