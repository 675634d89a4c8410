"""The `server.properties` of an embedded broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from watchword.streams.dev.free_ports import LOOPBACK

_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one node listens, on 127.0.0.1."""

    client: int
    """For everybody; takes whatever security the extra properties ask for."""
    internal: int
    """For the brokers among themselves and for us: always plain."""
    controller: int


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a cluster in which every node is broker and controller."""

    node_id: int
    ports: Ports
    controllers: Mapping[int, int]
    """The controller port of every node of the cluster, by node id."""


def server_properties(node: Node, data: Path, extra: Mapping[str, str]) -> str:
    """Return the file's text; `extra` wins over ours."""
    replicas = min(_REPLICAS, len(node.controllers))
    in_sync = max(1, replicas - 1)
    ports = node.ports
    voters = (f"{node_id}@{LOOPBACK}:{port}" for node_id, port in node.controllers.items())
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        # A fixed quorum keeps no ports in the log, so a later start may use others.
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": (
            f"CLIENT://{LOOPBACK}:{ports.client},INTERNAL://{LOOPBACK}:{ports.internal},"
            f"CONTROLLER://{LOOPBACK}:{ports.controller}"
        ),
        "listener.security.protocol.map": (
            "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        # A group's first member need not wait for others.
        "group.initial.rebalance.delay.ms": "0",
        # Small machines: few threads, small buffers, small index files.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "16777216",
        "log.index.size.max.bytes": "1048576",
        # A node that dies is noticed in seconds, as tests of faults need.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
    }
    return "".join(f"{name}={value}\n" for name, value in (properties | dict(extra)).items())
