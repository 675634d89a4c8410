"""A machine and its prover, round by round, against a join service."""

from base64 import b64decode
from datetime import timedelta
from hashlib import sha256
from typing import Any

from tests.support.joins import Bench, Machine
from watchword.handlers.prover import Prover
from watchword.schemas.ids import Role
from watchword.schemas.requests import Claims


def csr_sha256(machine: Machine) -> bytes:
    """Return what evidence is bound to."""
    return sha256(machine.csr).digest()


async def first_request(
    machine: Machine, prover: Prover, *, role: Role = "node", claims: Claims | None = None
) -> bytes:
    """Return the request of a round that begins anew."""
    payload = await prover.evidence(csr_sha256(machine), role)
    return machine.request(payload, attestor=prover.id, role=role, claims=claims)


async def next_request(
    machine: Machine,
    prover: Prover,
    deferred: dict[str, Any],
    *,
    role: Role = "node",
    claims: Claims | None = None,
) -> bytes:
    """Return the request that answers a challenge."""
    challenge = b64decode(deferred["deferred"]["challenge"])
    payload = await prover.answer(challenge, csr_sha256(machine), role)
    return machine.request(
        payload, attestor=prover.id, role=role, claims=claims, state=state_of(deferred)
    )


def state_of(deferred: dict[str, Any]) -> bytes:
    """Return the state that a challenge handed out."""
    return b64decode(deferred["deferred"]["state"])


async def join(
    bench: Bench,
    machine: Machine,
    prover: Prover,
    *,
    role: Role = "node",
    claims: Claims | None = None,
) -> dict[str, Any]:
    """Return the final answer, or the one that says to wait for an operator."""
    request = await first_request(machine, prover, role=role, claims=claims)
    [answer] = await bench.ask(request)
    while answer["outcome"] == "deferred" and answer["deferred"]["type"] == "challenge":
        request = await next_request(machine, prover, answer, role=role, claims=claims)
        [answer] = await bench.ask(request)
    return answer


async def last_reason(bench: Bench) -> str:
    """Return the newest refusal as `<attestor>:<reason>`."""
    found: str = await bench.one(
        "SELECT attestor || ':' || reason FROM refusals ORDER BY occurred_at DESC, request_sha256 LIMIT 1"
    )
    return found


async def approve_all(bench: Bench) -> None:
    """Have an operator agree to whatever waits."""
    await bench.fetch(
        "UPDATE join_requests SET state = 'approved', version = version + 1, decided_at = watchword.now(),"
        " decided_by = 'op' WHERE state = 'pending'"
    )


async def ban(bench: Bench, kind: str, value: str) -> None:
    """Ban a subject by plain SQL."""
    digest = sha256(f"{kind}\0{value}".encode()).digest()
    await bench.fetch(
        "INSERT INTO bans (subject, kind, value, banned_at, who, why) VALUES ($1, $2, $3, now(), 'op', 'test')",
        digest,
        kind,
        value,
    )


async def move_clock(bench: Bench, by: timedelta) -> None:
    """Move the database's clock; the service's connections are ended, so that they see it."""
    name = await bench.one("SELECT quote_ident(current_database())")
    await bench.run(
        f"ALTER DATABASE {name} SET watchword.clock_shift = '{by.total_seconds()} seconds'"
    )
    await bench.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'watchword-test' AND datname = current_database()"
    )
    await bench.close()
