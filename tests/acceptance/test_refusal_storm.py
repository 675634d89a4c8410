"""A storm of refusals with workers that are killed, judged from outside by a consumer that knows nothing of ours.

`REFUSALS=100000 pytest tests/acceptance/test_refusal_storm.py` is the storm of the promise; the suite has a small one.
"""

import asyncio
import json
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event

from tests.benchmarks.bench import FOLDER
from tests.benchmarks.deployment import Deployment, deployment, servers
from tests.benchmarks.loads import produce
from tests.support.refused_requests import kinds, mixed
from tests.support.waiting import until
from watchword.streams.simulator.fleet import Token, machines

REFUSALS = int(os.environ.get("REFUSALS", "1500"))
TOPICS = ("security.join.refused", "security.join.refused.ocsf")
TENANT_TOPIC = "security.join.refused.tenant.acme"
LIMIT = 60
_PATIENCE_S = 100 + REFUSALS / 50

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(200 + REFUSALS / 25)]


@dataclass
class Sums:
    """What a consumer adds up that has read no line of our code: plain JSON, and each id once."""

    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    details: Counter[str] = field(default_factory=Counter[str])
    held_back: Counter[str] = field(default_factory=Counter[str])
    recorded: Counter[str] = field(default_factory=Counter[str])
    ended: set[str] = field(default_factory=set[str])
    kinds: Counter[str] = field(default_factory=Counter[str])
    greatest: int = 0
    of_tenant: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Of the shared stream, what says that it is of the tenant with a topic of its own: values by id."""
    own: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """What stands in that topic."""

    def add(self, topic: str, headers: dict[str, bytes], value: bytes) -> None:
        """Take a record."""
        event_id = headers["ce_id"].decode()
        if event_id in self.ids[topic]:
            return
        self.ids[topic].add(event_id)
        self.greatest = max(self.greatest, len(value))
        body: dict[str, Any] = json.loads(value)
        if topic == TENANT_TOPIC:
            self.own[event_id] = value
        if topic != TOPICS[0]:
            return
        if body["tenant"] == "acme":
            self.of_tenant[event_id] = value
        self.kinds[body["type"]] += 1
        match body["type"]:
            case "security.join.refused" | "security.join.invalid":
                self.details[body["refusal"]] += 1
            case "security.join.refused.window":
                self.held_back[body["refusal"]] += body["suppressed"]
                (self.ended.add if body["phase"] == "end" else self.ended.discard)(body["refusal"])
            case _:
                pass

    @property
    def total(self) -> Counter[str]:
        """What was refused, by reason: told one by one, and told as a count."""
        return self.details + self.held_back


def check_cloudevent(headers: dict[str, bytes], key: bytes | None, value: bytes) -> None:
    """Have the official SDK read a record, and compare it with what the body repeats."""
    event = from_binary_event(KafkaMessage(headers, key, value))
    attributes, body = event.get_attributes(), json.loads(value)
    assert attributes["specversion"] == "1.0"
    assert attributes["datacontenttype"] == "application/json"
    assert event.get_data() == body
    if "schemaVersion" in body:
        assert (attributes["id"], attributes["type"]) == (body["id"], body["type"])
        assert attributes["time"].isoformat(timespec="milliseconds")[:23] == body["time"][:23]
        assert attributes["tenantid"] == body["tenant"]


async def _consume(bootstrap_servers: str, sums: Sums) -> None:
    consumer = AIOKafkaConsumer(
        *TOPICS, TENANT_TOPIC, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        async for record in consumer:
            headers = dict(record.headers)
            check_cloudevent(headers, record.key, record.value)
            sums.add(record.topic, headers, record.value)
    finally:
        await consumer.stop()


async def _kill_twice(deployed: Deployment, variables: dict[str, str], sums: Sums) -> None:
    """Kill a worker in the middle of the storm, start it again, and once more."""
    for share in (0.2, 0.5):
        await until(
            lambda share=share: sum(sums.total.values()) > share * REFUSALS / 4,  # type: ignore[misc]
            "the storm goes on",
            within_s=_PATIENCE_S,
        )
        await deployed.kill("worker-2")
        await deployed.start("worker-2", more=variables)


async def test_an_independent_consumer_adds_up_to_the_truth() -> None:
    """The security team knows how many there were of each, whatever died, and was told within the bound."""
    known, used_up = Token.new(), Token.new()
    variables = {"WATCHWORD_ATTESTORS__ENABLED": "x509pop,image,discovery"}
    own_topic = {"WATCHWORD_REFUSALS__TENANT_TOPICS": "acme"}
    sums = Sums()
    async with servers() as host, deployment(host) as deployed:
        await host.command("topics", "apply", more=own_topic)
        await deployed.start("signer")
        await deployed.start("relay", more=own_topic)
        await deployed.start("keeper", more={"WATCHWORD_KEEPER__PERIOD_S": "5"})
        await deployed.add_tokens([known, used_up], uses=1)
        await host.query(
            f"UPDATE tokens SET uses_left = 0 WHERE id = '{used_up.id}'",  # noqa: S608 - our own id
            database=deployed.database,
        )
        made = list(mixed(kinds(known, used_up), machines(REFUSALS, FOLDER), host.keys.seal_to))
        truth = Counter(name for name, _ in made)
        consuming = asyncio.create_task(_consume(host.kafka.bootstrap_servers, sums))
        try:
            for name in ("worker-1", "worker-2", "worker-3"):
                await deployed.start(name, more=variables)
            killing = asyncio.create_task(_kill_twice(deployed, variables, sums))
            await produce(host.kafka.bootstrap_servers, [request for _, request in made])
            await killing
            await until(
                lambda: sums.total == truth or consuming.done(),
                "the sums are the truth",
                within_s=_PATIENCE_S,
            )
            await until(
                lambda: sums.own == sums.of_tenant or consuming.done(),
                "the tenant's topic has its share",
                within_s=_PATIENCE_S,
            )
            await until(
                lambda: sums.ended >= set(sums.held_back) or consuming.done(),
                "the last summaries say that it is over",
                within_s=_PATIENCE_S,
            )
        finally:
            consuming.cancel()
            await asyncio.wait({consuming})
        if not consuming.cancelled():
            consuming.result()
        rows = await host.query(
            "SELECT attestor || ':' || reason AS refusal, count(*) AS n,"
            " count(*) FILTER (WHERE published) AS published,"
            " extract(epoch FROM max(occurred_at) - min(occurred_at)) AS seconds"
            " FROM refusals GROUP BY 1",
            database=deployed.database,
        )

    assert sums.total == truth
    assert {row["refusal"]: row["n"] for row in rows} == truth
    assert {row["refusal"]: row["published"] for row in rows} == sums.details
    # At most the limit in each sliding minute of claim time, which is a little after the row's own.
    for row in rows:
        minutes = (float(row["seconds"]) + 5) // 60 + 1
        assert row["published"] <= LIMIT * minutes, row["refusal"]
        # The loud one reaches it, and hides no other. (Slots of a worker that was killed are free a moment later.)
        least = LIMIT if row["n"] > LIMIT * 3 else min(row["n"], LIMIT // 2)
        assert row["published"] >= least, row["refusal"]
    # Each native event has one in OCSF, under another id.
    native, ocsf = (sums.ids[topic] for topic in TOPICS)
    assert len(native) == len(ocsf)
    assert not native & ocsf
    assert sums.greatest < 4096
    assert sums.kinds["security.join.alert"] >= 3
    # The tenant's own topic has its share of the stream, each event as it is, and nothing of anybody else.
    assert sums.own
    assert sums.own == sums.of_tenant
