"""Relays are killed around a send, paused until others have their shards, or meet a bad record."""

import asyncio
import json
import signal
import uuid

from tests.faults.faults.fault import Fault, Inject, Scale, until
from tests.faults.judge.topics import REFUSED
from tests.faults.processes.child import Child
from tests.faults.processes.deployment import RELAY_LEASE_S, Deployment

_HIT_S = 30.0
_SMALL = 20_000
"""Bytes of a record that the topic takes while one of the relay's rows is larger."""
_LARGE = 40_000
_REJECTED_S = 30.0


def _one(deployment: Deployment) -> Child:
    return deployment.rng.choice(deployment.fleet.of("relay"))


def kill_at(point: str) -> Inject:
    """Kill a relay around the sending of a wave."""

    async def inject(deployment: Deployment, scale: Scale) -> int:
        del scale
        relay = await _busy_relay(deployment)
        ends = len(relay.exits)
        relay.arm(point)

        async def was_hit() -> bool:
            return relay.was_hit(point) and len(relay.exits) > ends

        try:
            await until(was_hit, f"{relay.name} at {point}", within_s=_HIT_S)
        finally:
            relay.disarm(point)
        await deployment.fleet.await_ready([relay])
        return 1

    return inject


async def pause(deployment: Deployment, scale: Scale) -> int:
    """Pause a relay until others have its shards; then let it go on with what it held."""
    del scale
    relay = await _busy_relay(deployment)
    relay.send(signal.SIGSTOP)
    try:
        await _until_moved(deployment, relay)
    finally:
        relay.send(signal.SIGCONT)
    await deployment.fleet.await_ready([relay])
    return 1


async def zombie(deployment: Deployment, scale: Scale) -> int:
    """Pause a relay between its send and the move of its cursors, until others have its shards."""
    del scale
    point = "relay-after-send"
    relay = await _busy_relay(deployment)
    relay.arm(point, "stop")

    async def was_hit() -> bool:
        return relay.was_hit(point)

    try:
        await until(was_hit, f"{relay.name} at {point}", within_s=_HIT_S)
        await _until_moved(deployment, relay)
        # Time for the others to move on.
        await asyncio.sleep(1.0)
    finally:
        relay.disarm(point)
        relay.send(signal.SIGCONT)
    await deployment.fleet.await_ready([relay])
    return 1


async def _shards(deployment: Deployment, relay: Child) -> int:
    rows = await deployment.postgres.run(
        "SELECT count(*) FROM watchword.relay_cursors "
        "WHERE owner LIKE $1 || '-%' AND expires_at > clock_timestamp()",
        relay.name,
    )
    return int(rows[0][0])


async def _busy_relay(deployment: Deployment) -> Child:
    """Return a relay that holds shards."""
    relays = deployment.fleet.of("relay")
    chosen = [_one(deployment)]

    async def holds() -> bool:
        for relay in relays:
            if await _shards(deployment, chosen[0]):
                return True
            chosen[0] = relay
        return False

    await until(holds, "a relay holds shards", within_s=5 * RELAY_LEASE_S)
    return chosen[0]


async def _until_moved(deployment: Deployment, relay: Child) -> None:
    async def have_moved() -> bool:
        rows = await deployment.postgres.run(
            "SELECT count(*) FILTER (WHERE owner LIKE $1 || '-%'), "
            "count(*) FILTER (WHERE expires_at > clock_timestamp()) FROM watchword.relay_cursors",
            relay.name,
        )
        return bool(rows[0][0] == 0 and rows[0][1] > 0)

    await until(have_moved, f"others have the shards of {relay.name}", within_s=5 * RELAY_LEASE_S)


async def rejected_record(deployment: Deployment, scale: Scale) -> int:
    """Put a row that Kafka rejects in the way of a shard, and have an operator park it."""
    del scale
    configs = await deployment.kafka.topic_config(REFUSED)
    await deployment.kafka.set_topic_config(REFUSED, configs | {"max.message.bytes": str(_SMALL)})
    try:
        event_id = await _insert_large_row(deployment)
        relays = deployment.fleet.of("relay")

        async def is_rejected() -> bool:
            return any([event_id in await asyncio.to_thread(r.log.read_text) for r in relays])

        await until(is_rejected, "a relay says which record is rejected", within_s=_REJECTED_S)
        # Meanwhile other shards go on; this one has something to catch up with.
        await asyncio.sleep(1.5)
        why = "consumers learn of it from the operator of the fault suite"
        await asyncio.to_thread(deployment.fleet.command, "relay", "park", event_id, "--why", why)
        await until(
            lambda: _is_behind_it(deployment, event_id),
            "the shard goes on behind the parked row",
            within_s=_REJECTED_S,
        )
    finally:
        await deployment.kafka.set_topic_config(REFUSED, configs)
    return 1


async def _insert_large_row(deployment: Deployment) -> str:
    """Add a row to the journal in the bucket of the last refusal; return its event's id."""
    (last,) = await deployment.postgres.run(
        "SELECT shard, key, headers FROM watchword.journal WHERE topic = $1 ORDER BY seq DESC LIMIT 1",
        REFUSED,
    )
    event_id = str(uuid.uuid4())
    headers = json.loads(last["headers"]) | {"ce_id": event_id}
    body = {"id": event_id, "type": "security.join.refused", "padding": "x" * _LARGE}
    deployment.ledger.injected_events.add(event_id)
    await deployment.postgres.run(
        "INSERT INTO watchword.journal (event_id, shard, class, topic, type, key, headers, value, occurred_at) "
        "VALUES ($1, $2, 'refusal', $3, 'security.join.refused', $4, $5, $6, clock_timestamp())",
        event_id,
        last["shard"],
        REFUSED,
        last["key"],
        json.dumps(headers),
        json.dumps(body).encode(),
    )
    return event_id


async def _is_behind_it(deployment: Deployment, event_id: str) -> bool:
    """Tell whether every later row of the shard that is old enough has come out."""
    rows = await deployment.postgres.run(
        "SELECT j.event_id::text AS id FROM watchword.journal j JOIN watchword.journal bad "
        "ON bad.event_id = $1 AND j.shard = bad.shard AND j.seq > bad.seq "
        # What has no topic is kept for a rebuild and comes out nowhere.
        "WHERE j.topic IS NOT NULL AND j.recorded_at < clock_timestamp() - interval '1 second'",
        event_id,
    )
    seen = deployment.load.tail.events
    return bool(rows) and all(row["id"] in seen for row in rows)


_RELAYS = frozenset(("relays",))

FAULTS = (
    Fault("relay killed before send", kill_at("relay-before-send"), _RELAYS, "6.1 s"),
    Fault("relay killed after send", kill_at("relay-after-send"), _RELAYS, "6.1 s"),
    Fault("relay paused", pause, _RELAYS, "7.2 s"),
    Fault("relay paused after send", zombie, _RELAYS, "7.2 s"),
    Fault("record rejected and parked", rejected_record, _RELAYS | {"kafka", "postgres"}),
)
