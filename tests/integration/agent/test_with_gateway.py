"""The agent and the real gateway, with Kafka between it and a worker that answers as a test says."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support import gateway as gateways
from tests.support.agent_worker import Worker
from tests.support.agents import ChallengedProver, Machine, Service
from tests.support.crypto import NODE_ID
from tests.support.kafka import KafkaTopics
from watchword.schemas.requests import Claims
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.bootstrap import bootstrap
from watchword.streams.agent.errors import JoinRefused
from watchword.streams.agent.http_transport import HttpTransport
from watchword.streams.agent.join import JoinOptions, join

pytestmark = pytest.mark.kafka

QUICK = Pace(first_s=0.05, cap_s=0.2, resend_after_s=6.0, poll_s=2.0)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "state", now=datetime.now(UTC))
    machine.prover = ChallengedProver()
    machine.state = tmp_path / "new"
    return machine


async def test_machine_joins_through_the_gateway(
    machine: Machine, kafka_topics: KafkaTopics
) -> None:
    """Challenge, approval, an outage, forged answers and a lost one, over the wire as it is."""
    service, stranger = machine.service, Service()
    worker = Worker(machine, kafka_topics)
    worker.reactions = [
        service.challenge,
        lambda request: service.approval(request, seconds=1),
        lambda request: service.failed(request, "UNAVAILABLE"),
        stranger.refused,
        service.joined,
    ]
    async with (
        worker.working(),
        gateways.serving(kafka_topics.bootstrap_servers, kafka_topics.prefix) as served,
    ):
        await served.ready()
        transport = HttpTransport(str(served.client.base_url), pace=QUICK)
        await bootstrap(machine.state, transport, pin=service.pin)
        options = JoinOptions(claims=Claims, give_up_after_s=60)
        result = await join(machine.state, transport, machine.prover, options, pace=QUICK)
        assert await transport.crl() is None
        await transport.close()

    assert result.identity.node.node_id == NODE_ID
    # The forged answer to the last round left it without one, so it came twice.
    assert len(worker.seen) == 5
    assert len(set(worker.seen)) == 4


async def test_refused_machine_is_told_no_more_than_that(
    machine: Machine, kafka_topics: KafkaTopics
) -> None:
    """The one answer to everyone who stays out, all the way."""
    worker = Worker(machine, kafka_topics)
    worker.reactions = [machine.service.refused]
    async with (
        worker.working(),
        gateways.serving(kafka_topics.bootstrap_servers, kafka_topics.prefix) as served,
    ):
        await served.ready()
        transport = HttpTransport(str(served.client.base_url), pace=QUICK)
        await bootstrap(machine.state, transport, pin=machine.service.pin)
        with pytest.raises(JoinRefused, match=r"^Join refused$"):
            await join(machine.state, transport, machine.prover, pace=QUICK)
        await transport.close()
