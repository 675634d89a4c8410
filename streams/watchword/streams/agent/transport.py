"""The seam between the agent and the way its requests go: through a gateway, or straight to Kafka.

A transport is trusted with nothing. What it brings back is signed, and the agent checks it; what it
takes away is sealed.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from watchword.streams.agent.clock import AgentClock


class Conversation(Protocol):
    """Requests about one CSR, and the answers to them."""

    async def publish(self, request: bytes) -> None:
        """Return when the request is in the log; sending the same bytes again is harmless.

        Raises:
            TransportUnavailable: it may or may not be there; try again.
            TransportRefused: it will not be taken.
        """
        ...

    async def receive(self, request_sha256: bytes, wait_s: float) -> bytes | None:
        """Return the next thing that may be an answer to the request; None if none came in time.

        Something that was returned once is not returned again by this conversation.

        Raises:
            TransportUnavailable: try again.
        """
        ...


class Transport(Protocol):
    """Carries requests and answers, and brings the published documents."""

    @property
    def clock(self) -> AgentClock:
        """What time it is, as far as the machine and this transport know."""
        ...

    @property
    def answers_are_shared(self) -> bool:
        """Whether other machines can read the answers: then they have to be sealed to a reply key."""
        ...

    def conversation(self, csr_sha256: bytes) -> AbstractAsyncContextManager[Conversation]:
        """Open a conversation about a CSR; it listens before anything is sent.

        Entering raises `TransportUnavailable`.
        """
        ...

    async def key_set(self) -> bytes:
        """Return the signed key set; raises `TransportUnavailable` or `TransportRefused`."""
        ...

    async def trust_bundle(self) -> bytes:
        """Return the signed trust bundle; raises as `key_set` does."""
        ...

    async def crl(self, ca: str | None = None) -> bytes | None:
        """Return the CRL, DER, of the CA that issues or of a named one; None if none is published.

        Raises as `key_set` does.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
