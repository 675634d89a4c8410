"""What an attestor comes to is counted, and counting changes nothing."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from tests.support.attestors.scripted import REASONS, Script, Scripted
from tests.support.contexts import Desk
from watchword.handlers.attestor import (
    Admission,
    Approval,
    Deferral,
    Evidence,
    JoinContext,
    TenantId,
)
from watchword.handlers.errors import Refused, StoreUnavailable
from watchword.handlers.metered import OUTCOMES, Metered, metered
from watchword.schemas.ids import UnverifiedPayload
from watchword.schemas.requests import Claims


class Waiting(Scripted):
    """Wants an operator, or has no database."""

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Do what the payload says."""
        if evidence.payload == b"wait":
            return Approval(bytes(32), Admission(TenantId("acme"), "node", "web"))
        if evidence.payload == b"away":
            raise StoreUnavailable
        return await super().verify(evidence, context)


def counted(registry: CollectorRegistry, attestor: str = "scripted") -> dict[str, float]:
    values = {
        outcome: registry.get_sample_value(
            "watchword_attestor_verifications_total", {"attestor": attestor, "outcome": outcome}
        )
        for outcome in OUTCOMES
    }
    return {outcome: value for outcome, value in values.items() if value}


def timed(registry: CollectorRegistry, attestor: str = "scripted") -> float | None:
    return registry.get_sample_value(
        "watchword_attestor_verify_seconds_count", {"attestor": attestor}
    )


async def run(attestor: Metered, payload: bytes) -> object:
    evidence = Evidence(UnverifiedPayload(payload), Claims())
    try:
        return await attestor.verify(evidence, Desk("scripted").context())
    except (Refused, KeyError, StoreUnavailable) as error:
        return error


async def test_every_outcome_is_counted_once() -> None:
    """Whoever pages for `failed` must not be paged for refusals, nor miss what no dashboard knew yet."""
    registry = CollectorRegistry()
    attestor = metered(Waiting(), registry)
    assert timed(registry) == 0
    for payload in (
        Script().encode(),
        Script(rounds=2).encode(),
        Script(way="refuse").encode(),
        Script(way="raise").encode(),
        Script(way="junk", detail="text").encode(),
        b"wait",
        b"away",
    ):
        await run(attestor, payload)
    assert counted(registry) == {
        "admitted": 1,
        "deferred-approval": 1,
        "deferred-challenge": 1,
        "refused": 1,
        "failed": 2,
    }
    assert timed(registry) == 6


async def test_who_is_cancelled_has_failed() -> None:
    """A verifier that was late is the one that an operator looks for."""
    registry = CollectorRegistry()
    attestor = metered(Scripted(), registry)
    task = asyncio.create_task(run(attestor, Script(way="hang").encode()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert counted(registry) == {"failed": 1}


async def test_hook_is_told_each_refusal_and_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An author's bell may ring; a bell that breaks must not turn a refusal into something else."""
    told: list[str] = []

    def ring(reason: str) -> None:
        told.append(reason)
        message = "no bell"
        raise OSError(message)

    stranger = Scripted()
    monkeypatch.setattr(stranger, "on_refusal", ring, raising=False)
    attestor = metered(stranger, CollectorRegistry())
    refused = await run(attestor, Script(way="refuse", detail="taken").encode())
    assert isinstance(refused, Refused)
    assert await run(attestor, Script().encode()) is not refused
    assert told == ["taken"]


def test_several_attestors_share_the_series_and_keep_what_they_were() -> None:
    """Metered is what the catalog sees: id, version, roles, reasons and whether it brings its own SQL."""
    registry = CollectorRegistry()
    first = metered(Scripted(), registry)
    second = metered(Scripted("second", uses_tx=True), registry)
    assert metered(first, registry) is first
    assert (second.id, second.version, second.uses_tx) == ("second", "1", True)
    assert second.roles == {"node", "site"}
    assert second.reasons == REASONS
    assert (timed(registry), timed(registry, "second")) == (0, 0)
