"""The seam between the agent and the ways a machine can prove itself: what a verifier's other half does.

Rules for a prover. It runs on the joining machine and knows no server part. It is asked for fresh
evidence in every round that begins anew, and nothing of an earlier round holds then. A source that
is away, busy or not there yet is `NoEvidence`, never a crash and never half a proof. It keeps
secrets out of its errors: their text is shown and logged.
"""

from typing import Protocol

from watchword.handlers.errors import WatchwordError
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
