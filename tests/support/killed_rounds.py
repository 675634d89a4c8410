"""A worker that judges one round, says what it answered, and is killed."""

import asyncio
import multiprocessing
import signal
from multiprocessing.connection import Connection

from cryptography import x509

from tests.support.crypto import TRUST_DOMAIN
from tests.support.joins import ANYTHING
from tests.support.racing import KeyMaterial
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.join.policy import JoinPolicy
from watchword.handlers.join.records import Incoming
from watchword.handlers.service import JoinClock, JoinEvents, JoinSeams, create_join_service
from watchword.handlers.store.connection import Database
from watchword.handlers.store.joins import PostgresJoinStore
from watchword.handlers.store.slots import SlotLimits
from watchword.schemas.ids import AttestorId, TenantId


def certified(authority: bytes) -> X509PopAttestor:
    """Return `x509pop` for the certificates of a CA (DER)."""
    ca = x509.load_der_x509_certificate(authority)
    rule = Rule((ca,), {"commonName": "*"}, TenantId("acme"), "web")
    return X509PopAttestor(Config(TRUST_DOMAIN, (rule,)))


async def answered_and_killed(
    dsn: str, keys: KeyMaterial, authority: bytes, request: bytes
) -> tuple[bytes, int | None]:
    """Return the signed answer of a process, and the signal that ended it right afterwards."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_worker, args=(dsn, keys, authority, request, theirs))
    process.start()
    theirs.close()
    try:
        answer: bytes = await asyncio.to_thread(ours.recv_bytes)
        process.kill()
        await asyncio.to_thread(process.join)
    finally:
        process.kill()
        ours.close()
    return answer, None if process.exitcode is None else -process.exitcode


KILLED = int(signal.SIGKILL)


def _worker(
    dsn: str, keys: KeyMaterial, authority: bytes, request: bytes, pipe: Connection
) -> None:
    asyncio.run(_judge(dsn, keys, authority, request, pipe))


async def _judge(
    dsn: str, keys: KeyMaterial, authority: bytes, request: bytes, pipe: Connection
) -> None:
    store = PostgresJoinStore(Database(dsn, application_name="killed"), SlotLimits())
    service = create_join_service(
        store,
        JoinClock(),
        JoinEvents(worker="first"),
        keys.crypto(),
        [certified(authority)],
        JoinSeams(policy=JoinPolicy({AttestorId("x509pop"): ANYTHING})),
    )
    [answer] = await service.judge([Incoming(request, "join.requests", 0, 0)])
    pipe.send_bytes(answer.value)
    await asyncio.Event().wait()
