"""What a run of machines is expected to come to: written by who sends them, read by who judges."""

from dataclasses import dataclass, field
from typing import Literal

Way = Literal["gateway", "kafka"]

JOINED = "joined"


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of the run. `expected` is `joined`, or the refusal, `<attestor>:<reason>`."""

    name: str
    way: Way
    expected: str
    csr_sha256: str
    seen: str
    """What the machine itself was told: `joined`, `refused`, or what went wrong."""


@dataclass(frozen=True, slots=True)
class TokenUse:
    """How many uses of a token shall be left."""

    token_id: str
    uses_left: int


@dataclass(frozen=True, slots=True)
class Run:
    """All that is needed to judge a run. `starts` is where each topic's partitions ended before it."""

    machines: tuple[Machine, ...]
    tokens: tuple[TokenUse, ...]
    starts: dict[str, dict[int, int]]
    secrets: tuple[bytes, ...] = field(repr=False)
    """What must not be found anywhere."""
