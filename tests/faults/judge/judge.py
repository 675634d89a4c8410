"""The judgement of a round, over everything that it left behind."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.judge.admissions import Trust, check_admissions
from tests.faults.judge.answers import Reader, challenges_in, check_answers
from tests.faults.judge.approvals import check_approvals
from tests.faults.judge.canaries import Canaries
from tests.faults.judge.commands import check_commands
from tests.faults.judge.events import check_events, check_node_histories
from tests.faults.judge.explained import Explain, Explained, check_explained
from tests.faults.judge.findings import Findings
from tests.faults.judge.floods import check_floods
from tests.faults.judge.leaks import Leaks
from tests.faults.judge.ledger import Commands, Ledger
from tests.faults.judge.letters import check_letters
from tests.faults.judge.notes import check_notes
from tests.faults.judge.refusals import Bound, Stretch, check_refusals
from tests.faults.judge.standing import check_standing
from tests.faults.judge.tables import Tables
from tests.faults.judge.topics import (
    DEAD_LETTERS,
    NODE_EVENTS,
    REFUSED,
    REQUESTS,
    RESPONSES,
    Record,
    Taken,
    pieces_of,
    read_topic,
)

_OTHER_TOPICS = ("security.join.refused.ocsf", "trust.bundle")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the judge looks, and what it compares with."""

    bootstrap_servers: str
    dsn: str = field(repr=False)
    ledger: Ledger
    csr_keys: Mapping[bytes, bytes]
    """The SHA-256 of the public key of each CSR, by the CSR's."""
    ends: Mapping[str, str]
    """The nodes that were to end, and how, by their ids."""
    commands: Commands
    trust: Trust
    bound: Bound
    canaries: Canaries
    explain: Explain | None = None
    """Has requests explained; None if nobody is to be asked."""
    stalls: Sequence[Stretch] = ()
    """When PostgreSQL stood still."""
    logs: Sequence[Path] = ()
    pages: Sequence[tuple[str, bytes]] = ()
    """Metrics pages and command lines, by name."""


@dataclass(slots=True)
class Verdict:
    """What the judge found, and what there was."""

    findings: Findings = field(default_factory=Findings)
    counts: dict[str, int] = field(default_factory=dict[str, int])
    explained: Explained = field(default_factory=lambda: Explained(0, 0))


async def judge(evidence: Evidence) -> Verdict:
    """Read all topics and tables, and check every promise that they can show.

    Topics are read in pieces, and what is compared with answers before what is compared with events: a
    round may have left millions of each, which are not in memory together.

    Raises:
        Exception: something could not be read; there is no verdict then.
    """
    verdict = Verdict()
    leaks = Leaks(evidence.canaries, verdict.findings)
    # The keeper still tells of windows that end: what is written while we read may come after.
    async with Tables.opened(evidence.dsn) as tables:
        owed = {
            row["id"]
            for row in await tables.rows(
                "SELECT event_id::text AS id FROM journal"
                " WHERE topic IS NOT NULL AND recorded_at < clock_timestamp() - interval '5 s'"
            )
        }
    requests = await _judge_answers(evidence, leaks, verdict)
    await _judge_events(evidence, requests, owed, leaks, verdict)
    for name in _OTHER_TOPICS:
        await _read(evidence, name, leaks)
    async with Tables.opened(evidence.dsn) as tables:
        await leaks.in_tables(tables)
    leaks.in_files(evidence.logs)
    leaks.in_pages(evidence.pages)
    verdict.counts["bytes searched for secrets"] = leaks.looked
    return verdict


async def _judge_answers(evidence: Evidence, leaks: Leaks, verdict: Verdict) -> list[Taken]:
    """Check what was asked against what was answered and is recorded; return what Kafka has of requests."""
    findings, ledger = verdict.findings, evidence.ledger
    poisons = [(poison.partition, poison.offset) for poison in ledger.poisons]
    requests: list[Taken] = []
    async with aclosing(pieces_of(evidence.bootstrap_servers, REQUESTS, skip=poisons)) as pieces:
        async for piece in pieces:
            leaks.in_records(piece)
            requests += map(Taken.of, piece)
    reader = Reader(ledger, evidence.trust.signing, findings)
    responses = 0
    async with aclosing(pieces_of(evidence.bootstrap_servers, RESPONSES)) as pieces:
        async for piece in pieces:
            leaks.in_records(piece)
            reader.read(piece)
            responses += len(piece)
    async with Tables.opened(evidence.dsn) as tables:
        inbox = await tables.rows("SELECT digest, outcome, node_id, reason FROM inbox")
        outcomes = check_answers(ledger, requests, reader.answers, inbox, findings)
        nodes = await check_admissions(
            ledger, outcomes, dict(evidence.csr_keys), evidence.trust, tables, findings
        )
        states = await check_standing(ledger, outcomes, evidence.ends, tables, findings)
        commands = await check_commands(
            ledger, outcomes, evidence.commands, evidence.trust.signing, tables, findings
        )
        verdict.explained = await check_explained(requests, inbox, evidence.explain, findings)
        waited = await check_approvals(ledger, outcomes, tables, findings)
        notes = await check_notes(ledger, outcomes, tables, findings)
    verdict.counts |= {
        "requests": sum(1 for asked in ledger.asked.values() if asked.deliveries),
        "records": len(requests),
        "answers": responses,
        "outcomes": len(outcomes.final),
        "challenges": challenges_in(outcomes),
        "nodes": nodes,
        **{f"nodes {state}": count for state, count in sorted(states.items())},
        "waiting joins": sum(waited.values()),
        **{f"waiting joins {state}": count for state, count in sorted(waited.items())},
        "notes of an attestor": notes,
        "commands": commands,
        "commands done": len(evidence.commands.reported),
    }
    return requests


async def _judge_events(
    evidence: Evidence, requests: Sequence[Taken], owed: set[str], leaks: Leaks, verdict: Verdict
) -> None:
    """Check events and dead letters against the journal, and refusals against both."""
    findings, ledger = verdict.findings, evidence.ledger
    nodes = await _read(evidence, NODE_EVENTS, leaks)
    refused = await _read(evidence, REFUSED, leaks)
    letters = await _read(evidence, DEAD_LETTERS, leaks)
    async with Tables.opened(evidence.dsn) as tables:
        parked = {
            row["id"]
            for row in await tables.rows("SELECT event_id::text AS id FROM journal_parked")
        }
        if parked != ledger.injected_events:
            findings.wrong("parked events", parked ^ ledger.injected_events)
        published = await check_events(tables, [*nodes, *refused], owed - parked, parked, findings)
        await check_node_histories(tables, findings)
        refusals = await check_refusals(ledger, tables, evidence.bound, evidence.stalls, findings)
        junk = await check_floods(ledger, requests, refused, tables, findings)
    verdict.counts |= {
        "events": published.records,
        "events again": published.again,
        "refusals": refusals.rows,
        "published": refusals.published,
        "summarised": refusals.summarised,
        "junk turned down by gateways": junk.at_gateways,
        "junk counted in events": junk.counted,
        "machines booted at once": junk.booted,
        "dead letters": check_letters(ledger, requests, letters, findings),
    }


async def _read(evidence: Evidence, topic: str, leaks: Leaks) -> list[Record]:
    """Read a topic that is compared record by record."""
    found = await read_topic(evidence.bootstrap_servers, topic)
    leaks.in_records(found)
    return found
