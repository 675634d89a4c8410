"""Is the broker really there? Asked as a client would ask."""

import asyncio
import contextlib
from collections.abc import Callable

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from watchword.streams.dev.free_ports import LOOPBACK

_POLL_S = 0.05
_REQUEST_MS = 5_000
_PROBE_GROUP = "watchword-dev-readiness"


async def ready(port: int, *, node_id: int, gave_up: Callable[[], bool]) -> bool:
    """Wait until the broker has joined its cluster and consumer groups can be served.

    Asking for the coordinator of a group makes the topic of offsets, so that the first consumer
    meets no retriable errors.

    Args:
        port: The plain listener of the broker.
        node_id: The broker's id.
        gave_up: Asked between tries; when it says yes, the answer is False.
    """
    while not gave_up():
        # aiokafka logs an error for each connection that is refused; this looks first.
        if await _listens(port):
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                if await _serves(port, node_id):
                    return True
        await asyncio.sleep(_POLL_S)
    return False


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def _serves(port: int, node_id: int) -> bool:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=f"{LOOPBACK}:{port}", request_timeout_ms=_REQUEST_MS
    )
    try:
        await admin.start()
        cluster = await admin.describe_cluster()
        if node_id not in {broker["node_id"] for broker in cluster["brokers"]}:
            return False
        await admin.find_coordinator(_PROBE_GROUP)
    finally:
        await admin.close()
    return True
