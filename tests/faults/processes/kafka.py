"""Kafka as the deployment has it, and an administrator's view of it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from watchword.streams.dev.kafka import EmbeddedKafka
from watchword.streams.dev.kafka_cluster import KafkaCluster


class Kafka:
    """One node, or three with a copy of everything on each."""

    def __init__(self, folder: Path, *, nodes: int) -> None:
        """Start nothing yet."""
        self._cluster = KafkaCluster(folder / "kafka", size=nodes)

    @property
    def nodes(self) -> list[EmbeddedKafka]:
        """The nodes."""
        return self._cluster.nodes

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes."""
        return self._cluster.bootstrap_servers

    @property
    def logs(self) -> list[Path]:
        """What the nodes say."""
        return [node.log for node in self.nodes]

    async def start(self) -> None:
        """Start every node."""
        await self._cluster.start()

    async def remove(self) -> None:
        """Kill every node and delete what they have."""
        await self._cluster.remove()

    @asynccontextmanager
    async def admin(self) -> AsyncGenerator[Any]:
        """Give an administrator's client."""
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await client.start()
        try:
            yield client
        finally:
            await client.close()

    async def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""
        async with self.admin() as admin:
            await admin.create_partitions({topic: NewPartitions(total)})

    async def topic_config(self, topic: str) -> dict[str, str]:
        """Return the configs that were set for a topic itself."""
        async with self.admin() as admin:
            responses = await admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic)]
            )
        found: dict[str, str] = {}
        for response in responses:
            for resource in response.resources:
                # (name, value, read_only, source, sensitive, synonyms …); source 1 is the topic's own.
                found |= {entry[0]: entry[1] for entry in resource[4] if entry[3] == 1}
        return found

    async def set_topic_config(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set the configs of a topic, and no others."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))
        async with self.admin() as admin:
            for response in await admin.alter_configs([resource]):
                for code, message, *_ in response.resources:
                    if code:
                        raise KafkaError(message)

    async def group_members(self, group: str) -> dict[str, int]:
        """Return how many partitions each member of a group has, by its stable name or client's."""
        from aiokafka.coordinator.protocol import (  # noqa: PLC0415 - only here
            ConsumerProtocolMemberAssignment,
        )

        async with self.admin() as admin:
            responses = await admin.describe_consumer_groups([group])
        members: dict[str, int] = {}
        for response in responses:
            for described in response.groups:
                for member in described[5]:
                    # Nothing at all while the group is being rebalanced.
                    held = (
                        ConsumerProtocolMemberAssignment.decode(member[-1]).assignment
                        if member[-1]
                        else ()
                    )
                    members[member[0]] = sum(len(partitions) for _, partitions in held)
        return members
