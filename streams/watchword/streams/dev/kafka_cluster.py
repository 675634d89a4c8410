"""Several Kafka nodes on one machine, for tests of faults."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from watchword.streams.dev.free_ports import free_port
from watchword.streams.dev.kafka import EmbeddedKafka, KafkaOptions, Membership, new_cluster_id
from watchword.streams.dev.kafka_properties import Node, Ports


class KafkaCluster:
    """Nodes that are brokers and controllers; topics have three replicas where there are three.

    About 400 MB of memory a node. A cluster is new at each construction: its layout is not kept.
    """

    def __init__(
        self, data_dir: Path, *, size: int = 3, options: KafkaOptions | None = None
    ) -> None:
        """Lay the cluster out; nothing is started yet.

        Args:
            data_dir: A folder without data.
            size: How many nodes.
            options: For every node; a fixed port is not possible.
        """
        ports = {
            node_id: Ports(client=free_port(), internal=free_port(), controller=free_port())
            for node_id in range(1, size + 1)
        }
        controllers = {node_id: each.controller for node_id, each in ports.items()}
        cluster_id = new_cluster_id()
        self.nodes = [
            EmbeddedKafka(
                data_dir / f"node-{node_id}",
                options,
                membership=Membership(Node(node_id, each, controllers), cluster_id),
            )
            for node_id, each in ports.items()
        ]

    async def __aenter__(self) -> Self:
        """Start."""
        try:
            await self.start()
        except BaseException:
            await self.remove()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill every node and delete the data."""
        await self.remove()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes for clients, with commas."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    async def start(self) -> None:
        """Start the nodes that do not run, and return when each serves clients.

        Raises:
            RuntimeChanged: a jar is not the one that was pinned.
            ServerFailed: a node did not start.
        """
        async with asyncio.TaskGroup() as starts:
            for node in self.nodes:
                if not node.is_running:
                    starts.create_task(node.start())

    async def remove(self) -> None:
        """Kill every node and delete the data."""
        for node in self.nodes:
            await node.remove()
