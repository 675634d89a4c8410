"""What switches each guard off: patches of a running interpreter, never loaded by production."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from watchword.handlers import windows
from watchword.handlers.join import approvals, deciding, outcomes, reading, reclaim, settlement
from watchword.handlers.operators import requests as operator_requests
from watchword.handlers.rows import Pair
from watchword.handlers.store import connection, joins, slots, summaries
from watchword.handlers.store.join_reads import columns
from watchword.handlers.store.join_statements import SLOTS
from watchword.schemas import requests
from watchword.schemas.traceparent import trace_id_of
from watchword.streams.tracing import sdk
from watchword.streams.tracing import worker as traced_worker


def _replace(owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - a module or class
    """Put something else in a guard's place."""
    setattr(owner, name, value)


def inbox_claims_everything() -> None:
    """Let every delivery claim its digest, whoever has it."""

    async def claim_inbox(self: Any, claims: Sequence[Any], now: object) -> set[bytes]:  # noqa: ANN401
        del self, now
        return {claim.digest for claim in claims}

    async def look(self: Any, *arguments: Any) -> Any:  # noqa: ANN401
        found = await _look(self, *arguments)
        return type(found)(found.now, {}, {})

    _look: Any = joins.JoinSession.look
    _replace(joins.JoinSession, "look", look)
    _replace(joins.JoinSession, "claim_inbox", claim_inbox)


def tokens_are_not_counted_down_in_the_batch() -> None:
    """Decide every request of a batch as if it were the only one."""

    class Forgetful(deciding.Effects):
        def __init__(self) -> None:
            super().__init__()
            self.spends = _NoCount()

    _replace(deciding, "Effects", Forgetful)


class _NoCount(Counter[str]):
    def __setitem__(self, key: str, value: int) -> None:
        super().__setitem__(key, 0)


def nobody_is_overtaken() -> None:
    """Refuse, or have wait, whoever was admitted by another worker meanwhile."""

    def may_be_admitted(_: object) -> bool:
        return False

    _replace(deciding, "may_be_admitted", may_be_admitted)
    _replace(settlement, "may_be_admitted", may_be_admitted)


def csrs_are_not_remembered() -> None:
    """Admit a CSR again, whoever has been admitted with it: an earlier request, or one of this batch."""

    def lost_csr(candidate: Any, *_: object) -> Any:  # noqa: ANN401
        return candidate.judgement

    async def look(self: Any, *arguments: Any) -> Any:  # noqa: ANN401
        return dataclasses.replace(await _look(self, *arguments), csrs={})

    _look: Any = joins.JoinSession.look
    _replace(joins.JoinSession, "look", look)
    _replace(deciding, "_lost_csr", lost_csr)


def key_owners_are_ignored() -> None:
    """Let a public key be on any number of nodes."""

    def key_claim(candidate: Any) -> Pair:  # noqa: ANN401
        return ("key", candidate.digest)

    _replace(deciding, "key_claim", key_claim)
    _replace(settlement, "key_claim", key_claim)


def seals_bind_nothing() -> None:
    """Seal and open without what the envelope says."""

    def info(**_: object) -> bytes:
        return b"watchword join v1"

    _replace(requests, "seal_info", info)


def bans_are_not_read() -> None:
    """Find nothing banned."""

    async def banned(self: Any, subjects: object) -> set[bytes]:  # noqa: ANN401
        del self, subjects
        return set()

    _replace(joins.JoinSession, "banned", banned)


def reclaim_reaches_everywhere() -> None:
    """Let `allowReclaim` take any node."""

    def reclaims(*_: object) -> bool:
        return True

    _replace(reclaim, "reclaims", reclaims)


def every_admission_stands() -> None:
    """Repeat an admission whatever became of its node."""

    async def admissions(self: Any, csrs: Sequence[bytes]) -> Mapping[bytes, Any]:  # noqa: ANN401
        from dataclasses import replace  # noqa: PLC0415

        return {
            csr: replace(found, stands=True)
            for csr, found in (await _admissions(self, csrs)).items()
        }

    _admissions: Any = joins.JoinSession.admissions
    _replace(joins.JoinSession, "admissions", admissions)


def approvals_are_for_anything() -> None:
    """Take every grant for the one that an operator saw."""

    def snapshot_of(grant: object) -> bytes:
        del grant
        return b"{}"

    _replace(approvals, "snapshot_of", snapshot_of)
    _replace(reading, "snapshot_of", snapshot_of)


def decisions_are_about_anything() -> None:
    """Let an operator decide whatever has happened since they looked."""

    def unchanged(*_: object) -> None:
        return None

    _replace(operator_requests, "_check_unchanged", unchanged)


def slots_are_not_claimed() -> None:
    """Publish every refusal, however many there are."""

    async def claim(self: Any, connection: object, need: Mapping[Any, int], learned: object) -> Any:  # noqa: ANN401
        del self, connection, learned
        return dict(need)

    _replace(slots.Slots, "claim", claim)


def slots_are_made_in_the_batch() -> None:
    """Make a new bucket's slots in the transaction that claims them."""

    async def make(self: Any, connection: Any, buckets: Iterable[Any]) -> None:  # noqa: ANN401
        of_buckets = columns(list(buckets), 3)
        sizes = (self.limits.per_reason, self.limits.per_attestor)
        await connection.execute(SLOTS.make, *of_buckets, *sizes)

    _replace(slots.Slots, "_make", make)


def gateways_take_on_whatever_comes() -> None:
    """Let as many requests be on their way to Kafka as there are, however long they take."""
    from watchword.streams.gateway.shedding import Window  # noqa: PLC0415

    _replace(Window, "begin", lambda self: self._clock())


def who_leaves_frees_the_way_to_kafka() -> None:
    """Take a request for one that missed its deadline as soon as its client has gone."""
    from watchword.streams.gateway.requests import Place  # noqa: PLC0415

    def leave(self: Place, *_: object) -> None:
        self._window.end(self._begun, acknowledged=not self._is_sent)

    _replace(Place, "__exit__", leave)
    _replace(Place, "_send", lambda self, admitted, headers: self._carry(admitted, headers))


def polls_end_together() -> None:
    """Let each long poll last as long as was asked for."""
    from watchword.streams.gateway import routes  # noqa: PLC0415

    _replace(routes, "_SPREAD", 0.0)


def idle_polls_end_at_once() -> None:
    """Let all whose time is over be answered in the same turn of the event loop."""
    from watchword.streams.gateway import routes  # noqa: PLC0415

    _replace(routes, "_ENDS_PER_TURN", 1_000_000)


def gateways_stop_to_look_for_garbage() -> None:
    """Let the collector look at everything that waits, as often as it does by default."""
    from watchword.streams.gateway import process  # noqa: PLC0415

    _replace(process, "spare_the_collector", lambda: None)


def senders_wait_for_metadata() -> None:
    """Let the sender of a producer that was given up wait for what nobody asks for any more."""
    from watchword.streams import kafka_closing  # noqa: PLC0415

    _replace(kafka_closing, "_send_away_who_waits_for_metadata", lambda _: None)


def machines_come_again_at_once() -> None:
    """Tell each machine that is turned away to come again in a second."""
    from watchword.streams.gateway.shedding import Turns  # noqa: PLC0415

    _replace(Turns, "next_s", lambda _: 1)


def good_byes_are_waited_for() -> None:
    """Hang up as long as the server takes to say good-bye."""
    _replace(connection, "_CLOSE_SECONDS", 3600)


def no_slot_is_exempt() -> None:
    """Let noise of one reason use up what the others need."""
    _replace(slots, "EXEMPT", 0)


def nobodys_refusals_are_a_tenants() -> None:
    """Let whoever has authenticated as nobody write into a tenant's stream."""
    _replace(outcomes, "ROOT", "acme")


def periods_forget_what_came_before() -> None:
    """Count a period from the last look on, and not from where it began."""

    def look(*arguments: Any, from_snapshot: str, **named: Any) -> Any:  # noqa: ANN401
        found = _look(*arguments, from_snapshot=from_snapshot, **named)
        due = {
            bucket: type(one)(from_snapshot, one.period_start) for bucket, one in found.due.items()
        }
        return type(found)(due, found.grown)

    _look = windows.look
    _replace(summaries, "look", look)


def any_trace_is_adopted() -> None:
    """Take whatever stands beside a record for the gateway's."""

    class Anything(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    _replace(traced_worker, "trace_id_of", lambda digest: Anything(trace_id_of(digest)))


def flags_over_the_wire_count() -> None:
    """Sample as a header says."""
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    def should_sample(self: sdk.OursAlone, *arguments: object) -> object:
        share = TraceIdRatioBased(self._bound / (1 << 64))
        return ParentBased(share).should_sample(*arguments)  # type: ignore[arg-type]  # passed on

    _replace(sdk.OursAlone, "should_sample", should_sample)


def exporters_say_everything() -> None:
    """Let the exporter of traces log whatever an exception says."""
    _replace(sdk, "_name_exceptions", lambda _: True)


def transaction_ids_are_not_compared() -> None:
    """Let relays and keepers work on a database that a dump was loaded into."""
    from watchword.handlers.store import deployment  # noqa: PLC0415
    from watchword.streams.keeper import keeper  # noqa: PLC0415

    async def passed(connection: object) -> None:
        del connection

    _replace(deployment, "check_ids", passed)
    _replace(keeper, "check_ids", passed)


def every_schema_is_fit() -> None:
    """Let a release work on a schema from which its successor has taken away what it uses."""
    from watchword.handlers.store import migrate  # noqa: PLC0415

    def none(*_: object) -> list[str]:
        return []

    _replace(migrate, "_problems", none)


SWITCHES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        inbox_claims_everything,
        tokens_are_not_counted_down_in_the_batch,
        nobody_is_overtaken,
        csrs_are_not_remembered,
        key_owners_are_ignored,
        seals_bind_nothing,
        bans_are_not_read,
        reclaim_reaches_everywhere,
        every_admission_stands,
        approvals_are_for_anything,
        decisions_are_about_anything,
        slots_are_not_claimed,
        slots_are_made_in_the_batch,
        gateways_take_on_whatever_comes,
        who_leaves_frees_the_way_to_kafka,
        polls_end_together,
        idle_polls_end_at_once,
        gateways_stop_to_look_for_garbage,
        senders_wait_for_metadata,
        machines_come_again_at_once,
        good_byes_are_waited_for,
        no_slot_is_exempt,
        nobodys_refusals_are_a_tenants,
        periods_forget_what_came_before,
        any_trace_is_adopted,
        flags_over_the_wire_count,
        exporters_say_everything,
        transaction_ids_are_not_compared,
        every_schema_is_fit,
    )
}
