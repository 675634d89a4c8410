"""The properties of an embedded broker."""

from pathlib import Path

import pytest

from watchword.streams.dev.kafka_properties import Node, Ports, server_properties


def _properties(nodes: int, extra: dict[str, str] | None = None) -> dict[str, str]:
    controllers = {node_id: 3000 + node_id for node_id in range(1, nodes + 1)}
    node = Node(1, Ports(client=1000, internal=2000, controller=3001), controllers)
    lines = server_properties(node, Path("/data"), extra or {}).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_every_listener_is_on_loopback() -> None:
    listeners = _properties(1)["listeners"].split(",")
    assert [listener.split("://")[1] for listener in listeners] == [
        "127.0.0.1:1000",
        "127.0.0.1:2000",
        "127.0.0.1:3001",
    ]


def test_topics_are_never_made_by_accident() -> None:
    assert _properties(1)["auto.create.topics.enable"] == "false"


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, "1", "1"), (3, "3", "2")])
def test_replicas_follow_the_size_of_the_cluster(nodes: int, replicas: str, in_sync: str) -> None:
    properties = _properties(nodes)
    assert properties["offsets.topic.replication.factor"] == replicas
    assert properties["default.replication.factor"] == replicas
    assert properties["min.insync.replicas"] == in_sync


def test_every_node_knows_every_controller() -> None:
    voters = _properties(3)["controller.quorum.voters"]
    assert voters == "1@127.0.0.1:3001,2@127.0.0.1:3002,3@127.0.0.1:3003"


def test_extra_properties_win() -> None:
    properties = _properties(1, {"num.io.threads": "9", "authorizer.class.name": "A"})
    assert properties["num.io.threads"] == "9"
    assert properties["authorizer.class.name"] == "A"
