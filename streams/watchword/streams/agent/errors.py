"""What can go wrong on the machine, told to the person or the unit file that runs the agent.

AgentError                exit 1
├── TransportUnavailable  no gateway or broker answers now; try again (exit 69)
├── TransportRefused      what is at that address does not take our requests
├── NotBootstrapped       no pin yet: `agent bootstrap` comes first
├── PinMismatch           the keys offered are not the pinned ones, or older than those stored
├── StateUnusable         the state directory cannot be used
├── StateBusy             another agent works in the state directory (exit 4)
├── HandlersUnusable      others can change what commands would run (exit 2)
├── JoinRefused           the service said no, and no more than that (exit 5)
├── RequestNotUsable      the service cannot use this agent's requests
├── AnswerNotUsable       a join whose certificate is not for this machine
└── GaveUp                no outcome within the time given; the join can be resumed (exit 75)
"""

from typing import ClassVar

from watchword.handlers.errors import WatchwordError


class AgentError(WatchwordError):
    """The agent cannot go on."""

    exit_code: ClassVar[int] = 1


class TransportUnavailable(AgentError):
    """Nothing answers at the service's address now."""

    exit_code = 69

    def __init__(self, message: str | None = None, *, retry_after_s: float | None = None) -> None:
        """`retry_after_s` is what the other side asked for, in seconds."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TransportRefused(AgentError):
    """What is at the service's address does not take our requests."""


class NotBootstrapped(AgentError):
    """There is no pin yet: run `watchword agent bootstrap --pin sha256:…` first."""


class PinMismatch(AgentError):
    """The keys offered are not the pinned ones, or older than those seen before."""


class StateUnusable(AgentError):
    """The state directory cannot be used."""


class StateBusy(AgentError):
    """Another agent is working in this state directory."""

    exit_code = 4


class HandlersUnusable(AgentError):
    """The folder of handlers cannot be used."""

    exit_code = 2


class JoinRefused(AgentError):
    """Join refused"""  # noqa: D415 - the wire's own words

    exit_code = 5


class RequestNotUsable(AgentError):
    """The service cannot use this agent's requests."""


class AnswerNotUsable(AgentError):
    """The certificate in the answer is not for this machine."""


class GaveUp(AgentError):
    """There was no outcome in the time given. The join goes on where it stopped when it is run again."""

    exit_code = 75
