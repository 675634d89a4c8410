"""Plans for topics: what would be lost stays."""

from watchword.schemas.topics import Topic
from watchword.streams.topics.plan import Found, Step, Wish, plan

TOPIC = Topic("join.requests", 24, "", "", {"retention.ms": "1000", "cleanup.policy": "delete"})
WISH = Wish(replication_factor=3, min_insync_replicas=2, partitions={})
CONFIGS = {"retention.ms": "1000", "cleanup.policy": "delete", "min.insync.replicas": "2"}


def steps_for(
    *, partitions: int = 24, replicas: int = 3, wish: Wish = WISH, **changed: str
) -> list[Step]:
    configs = CONFIGS | {name.replace("_", "."): value for name, value in changed.items()}
    found = Found(partitions, replicas, configs, configs)
    return plan([TOPIC], {TOPIC.name: found}, wish)


def test_what_is_as_it_has_to_be_needs_nothing() -> None:
    """An applied plan is empty the next time."""
    assert steps_for() == []


def test_a_missing_topic_is_created() -> None:
    """With as many partitions as the deployment says."""
    (step,) = plan([TOPIC], {}, Wish(3, 2, {"join.requests": 48}))

    assert (step.action, step.wanted) == ("create", "48 partitions")


def test_partitions_are_added_and_never_taken_away() -> None:
    """Kafka cannot, and a topic made anew would lose its records."""
    (more,) = steps_for(partitions=12)
    (fewer,) = steps_for(partitions=48)

    assert more.action == "add-partitions"
    assert (fewer.action, fewer.changes) == ("kept", False)


def test_a_longer_retention_is_kept() -> None:
    """Somebody may be keeping evidence; records that were deleted do not come back."""
    assert [s.action for s in steps_for(retention_ms="2000")] == ["kept"]
    assert [s.action for s in steps_for(retention_ms="-1")] == ["kept"]
    assert [s.action for s in steps_for(retention_ms="500")] == ["set"]


def test_other_configs_are_set() -> None:
    """A compacted topic of requests would lose all but one of a CSR's."""
    (step,) = steps_for(cleanup_policy="compact")

    assert (step.action, step.wanted) == ("set", "delete")


def test_too_few_copies_are_told_and_left_to_an_operator() -> None:
    """Moving replicas is a reassignment, with a load of its own."""
    (step,) = steps_for(replicas=1)

    assert (step.action, step.changes) == ("cannot", False)
