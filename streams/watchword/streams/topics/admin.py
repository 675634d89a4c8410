"""Kafka's own view of the topics, and applying a plan to it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from watchword.handlers.errors import Unavailable
from watchword.schemas.topics import TOPICS, Topic
from watchword.streams.kafka_clients import KafkaConnection
from watchword.streams.topics.access import Access, access_plan
from watchword.streams.topics.access_admin import apply_access, found_access
from watchword.streams.topics.plan import Found, Step, Wish, plan

_DEADLINE_S = 60.0
_POLL_S = 0.05
_TOPIC_CONFIG = 1
"""`ConfigSource` of the protocol: set on the topic itself."""


@asynccontextmanager
async def administering(kafka: KafkaConnection) -> AsyncGenerator["TopicAdmin"]:
    """Give an administrator of topics.

    Raises:
        Unavailable: Kafka is away, or refuses.
    """
    client = AIOKafkaAdminClient(**kafka.client_options())
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await client.start()
            yield TopicAdmin(client)
    except (KafkaError, TimeoutError) as error:
        message = f"Kafka: {type(error).__name__}: {error}".rstrip(": ")
        raise Unavailable(message) from error
    finally:
        await client.close()


class TopicAdmin:
    """Looks at topics and changes them. Its methods raise aiokafka's errors: see `administering`."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - aiokafka has no types
        """Take a started client."""
        self._client = client

    async def found(self, topics: Sequence[Topic] = TOPICS) -> dict[str, Found]:
        """Return those topics that there are."""
        described: list[dict[str, Any]] = await self._client.describe_topics(
            [topic.name for topic in topics]
        )
        there = {topic["topic"]: topic for topic in described if topic["error_code"] == 0}
        if not there:
            return {}
        configs = await self._configs(list(there))
        return {
            name: Found(
                partitions=len(topic["partitions"]),
                replication_factor=min(len(p["replicas"]) for p in topic["partitions"]),
                configs={key: value for key, (value, _) in configs[name].items()},
                own={key: value for key, (value, own) in configs[name].items() if own},
            )
            for name, topic in there.items()
        }

    async def apply(
        self, steps: Sequence[Step], wish: Wish, topics: Sequence[Topic] = TOPICS
    ) -> None:
        """Change what a plan says; what it keeps is left alone."""
        for topic in topics:
            own = [step for step in steps if step.topic == topic.name and step.changes]
            if not own:
                continue
            if own[0].action == "create":
                await self._create(topic, wish)
            else:
                await self._change(topic, own)
        await self._until_visible(topics)

    async def access_steps(
        self, access: Access | None, topics: Sequence[Topic], *, are_applied: bool = False
    ) -> list[Step]:
        """Return what differs in rules and quotas, and change it if asked; nothing where nobody is named."""
        if access is None or access.is_empty:
            return []
        found = await found_access(self._client, access, [topic.name for topic in topics])
        if are_applied:
            await apply_access(self._client, access, found)
        return access_plan(access, found)

    async def _until_visible(self, topics: Sequence[Topic]) -> None:
        """Wait until metadata has every partition with a leader: it lags behind what was created."""
        names = [topic.name for topic in topics]
        while True:
            described: list[dict[str, Any]] = await self._client.describe_topics(names)
            partitions = [partition for topic in described for partition in topic["partitions"]]
            if all(topic["error_code"] == 0 and topic["partitions"] for topic in described) and all(
                partition["leader"] >= 0 for partition in partitions
            ):
                return
            await asyncio.sleep(_POLL_S)

    async def _create(self, topic: Topic, wish: Wish) -> None:
        response = await self._client.create_topics(
            [
                NewTopic(
                    topic.name,
                    wish.partitions_of(topic),
                    wish.replication_factor,
                    topic_configs=wish.configs(topic),
                )
            ]
        )
        for _, code, message in response.topic_errors:
            if code not in (0, TopicAlreadyExistsError.errno):
                raise _error(code, topic.name, message)

    async def _change(self, topic: Topic, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.action == "add-partitions":
                await self._client.create_partitions(
                    {topic.name: NewPartitions(total_count=int(step.wanted))}
                )
        changed = {step.what: step.wanted for step in steps if step.action == "set"}
        if not changed:
            return
        # AlterConfigs sets all at once: what is not repeated would fall back to the broker's default.
        there = (await self.found([topic]))[topic.name]
        resource = ConfigResource(
            ConfigResourceType.TOPIC, topic.name, configs={**there.own, **changed}
        )
        for response in await self._client.alter_configs([resource]):
            for code, message, *_ in response.resources:
                if code:
                    raise _error(code, topic.name, message)

    async def _configs(self, names: Sequence[str]) -> dict[str, dict[str, tuple[str, bool]]]:
        """Return each topic's configs with whether they are set on the topic itself."""
        responses = await self._client.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        )
        found: dict[str, dict[str, tuple[str, bool]]] = {}
        for response in responses:
            for code, message, _, name, entries in response.resources:
                if code:
                    raise _error(code, name, message)
                # name, value, read only, source (or, in version 0, whether it is a default) …
                found[name] = {
                    entry[0]: (entry[1], _is_own(response.API_VERSION, entry[3]))
                    for entry in entries
                }
        return found


def _error(code: int, topic: str, message: str | None) -> KafkaError:
    kind: type[KafkaError] = for_code(code)
    return kind(f"{topic}: {message or ''}")


def _is_own(version: int, said: Any) -> bool:  # noqa: ANN401 - a number or a truth
    return not said if version == 0 else said == _TOPIC_CONFIG


async def differences(
    kafka: KafkaConnection,
    wish: Wish,
    topics: Sequence[Topic] = TOPICS,
    access: Access | None = None,
) -> list[Step]:
    """Return what differs, of topics and of who may do what; raises `Unavailable`."""
    async with administering(kafka) as admin:
        steps = plan(topics, await admin.found(topics), wish)
        return steps + (await admin.access_steps(access, topics))


async def apply(
    kafka: KafkaConnection,
    wish: Wish,
    topics: Sequence[Topic] = TOPICS,
    access: Access | None = None,
) -> list[Step]:
    """Make topics, rules and quotas as they shall be, and return what differed before; raises `Unavailable`."""
    async with administering(kafka) as admin:
        steps = plan(topics, await admin.found(topics), wish)
        await admin.apply(steps, wish, topics)
        return steps + (await admin.access_steps(access, topics, are_applied=True))
