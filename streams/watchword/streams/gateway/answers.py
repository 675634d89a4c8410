"""Recent answers, and whoever waits for one.

The gateway cannot tell a genuine answer from a forged one: that takes the pinned key, which
agents have. So it must not let one answer hide another. It keeps the last few *distinct* answers
to a request in order of arrival; an agent that does not believe one says so by its tag, and gets
the next. Tags are hashes of the answer, so they mean the same on every replica and after a restart.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic

from watchword.streams.gateway import metrics

_TAG_CHARS = 32
_OVERHEAD_BYTES = 512
"""What an entry costs beside its value; measured with `tracemalloc`, rounded up."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One signed answer, as a worker wrote it."""

    value: bytes
    tag: str
    """The first 32 hex digits of the value's SHA-256."""


@dataclass(slots=True)
class _Kept:
    answers: list[Answer] = field(default_factory=list[Answer])
    bytes: int = 0
    at: float = 0.0


class Answers:
    """A cache by request digest (32 bytes), bounded in requests, bytes and age."""

    def __init__(
        self,
        *,
        requests: int,
        total_bytes: int,
        per_request: int,
        ttl_s: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Keep nothing yet."""
        self._requests = requests
        self._total_bytes = total_bytes
        self._per_request = per_request
        self._ttl_s = ttl_s
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        self.is_closed = False
        """Whether nobody may wait any more."""
        self.bytes = 0
        """What is kept, in bytes, with an allowance for each entry."""

    def __len__(self) -> int:
        """Return for how many requests answers are kept."""
        return len(self._kept)

    def add(self, digest: bytes, value: bytes) -> bool:
        """Keep an answer and wake whoever waits for it; return whether it was new."""
        answer = Answer(value, sha256(value).hexdigest()[:_TAG_CHARS])
        kept = self._kept.setdefault(digest, _Kept())
        is_new = all(answer.tag != other.tag for other in kept.answers)
        if is_new:
            kept.answers.append(answer)
            self._count(kept, len(value) + _OVERHEAD_BYTES)
            if len(kept.answers) > self._per_request:
                self._count(kept, -len(kept.answers.pop(0).value) - _OVERHEAD_BYTES)
        kept.at = self._clock()
        self._kept.move_to_end(digest)
        self._evict()
        for future in self._waiting.get(digest, ()):
            _wake(future)
        return is_new

    def find(self, digest: bytes, after: str | None) -> Answer | None:
        """Return the answer that follows the one tagged `after`, if there is one.

        Without `after`, and with one that is not kept here, the first that is kept.
        """
        self._evict()
        kept = self._kept.get(digest)
        if kept is None:
            return None
        at = next((i for i, answer in enumerate(kept.answers) if answer.tag == after), -1)
        return kept.answers[at + 1] if at + 1 < len(kept.answers) else None

    @contextmanager
    def waiting(self, digest: bytes) -> Generator[asyncio.Future[None]]:
        """Yield a future that is done at the next answer to this request, or when all are sent away."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_result(None)
        waiting = self._waiting.setdefault(digest, set())
        waiting.add(future)
        try:
            yield future
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(digest) is waiting:
                del self._waiting[digest]

    def send_away(self) -> None:
        """Wake everybody who waits, now and from now on: the gateway is stopping."""
        self.is_closed = True
        for futures in self._waiting.values():
            for future in futures:
                _wake(future)

    def _evict(self) -> None:
        oldest_at = self._clock() - self._ttl_s
        while self._kept:
            digest, kept = next(iter(self._kept.items()))
            if (
                kept.at >= oldest_at
                and len(self._kept) <= self._requests
                and self.bytes <= self._total_bytes
            ):
                break
            del self._kept[digest]
            self.bytes -= kept.bytes
        metrics.ANSWERS.set(len(self._kept))
        metrics.ANSWER_BYTES.set(self.bytes)

    def _count(self, kept: _Kept, amount: int) -> None:
        kept.bytes += amount
        self.bytes += amount


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
