"""What would have to change in Kafka: pure, from the topics as wanted and as found.

Nothing that a plan does loses a record: partitions are only added, and a retention or size limit
that is greater than ours stays. Both are told as `kept`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from watchword.schemas.topics import Topic

Action = Literal["create", "add-partitions", "set", "kept", "cannot"]

_NEVER_LESS = frozenset(("retention.ms", "retention.bytes", "max.message.bytes"))
_UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as it is. `configs` are all values in force, `own` those set on the topic itself."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    own: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wish:
    """How the deployment wants its topics: `partitions` by name wins over the release's number."""

    replication_factor: int
    min_insync_replicas: int
    partitions: Mapping[str, int]

    def configs(self, topic: Topic) -> dict[str, str]:
        """Return the configs of a topic, those of the deployment included."""
        return topic.configs | {"min.insync.replicas": str(self.min_insync_replicas)}

    def partitions_of(self, topic: Topic) -> int:
        """Return how many partitions a topic shall have."""
        return self.partitions.get(topic.name, topic.partitions)


@dataclass(frozen=True, slots=True)
class Step:
    """One difference. `kept` and `cannot` change nothing; `cannot` needs an operator."""

    topic: str
    action: Action
    what: str
    now: str
    wanted: str

    @property
    def changes(self) -> bool:
        """Tell whether applying the plan changes something here."""
        return self.action not in ("kept", "cannot")


def plan(topics: Iterable[Topic], found: Mapping[str, Found], wish: Wish) -> list[Step]:
    """Return all differences, topic by topic."""
    steps: list[Step] = []
    for topic in topics:
        there = found.get(topic.name)
        if there is None:
            partitions = str(wish.partitions_of(topic))
            steps.append(Step(topic.name, "create", "topic", "-", f"{partitions} partitions"))
        else:
            steps += _differences(topic, there, wish)
    return steps


def _differences(topic: Topic, there: Found, wish: Wish) -> Iterator[Step]:
    wanted = wish.partitions_of(topic)
    if there.partitions != wanted:
        grows = there.partitions < wanted
        action: Action = "add-partitions" if grows else "kept"
        yield Step(topic.name, action, "partitions", str(there.partitions), str(wanted))
    if there.replication_factor < wish.replication_factor:
        yield Step(
            topic.name,
            "cannot",
            "replication factor",
            str(there.replication_factor),
            str(wish.replication_factor),
        )
    for name, value in sorted(wish.configs(topic).items()):
        now = there.configs.get(name, "-")
        if now != value:
            kept = name in _NEVER_LESS and _is_more(now, value)
            yield Step(topic.name, "kept" if kept else "set", name, now, value)


def _is_more(now: str, wanted: str) -> bool:
    try:
        return int(now) == _UNLIMITED or int(now) > int(wanted) != _UNLIMITED
    except ValueError:
        return False
