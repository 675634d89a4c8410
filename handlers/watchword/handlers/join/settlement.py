"""Phase B: claim, decide, write, in one short transaction without foreign code.

The order of locks binds every writer of the schema: bans, inbox, tokens, nodes, tenants that gain a
waiting join, join requests, reclaim grants, admission claims, uses, bindings, commands to nodes, refusal slots, the journal. Within a table rows are taken in the order of their key.
  0. wait for bans that run (`Session.begin`);
  1. claim the digests; what is not ours is replayed;
  2. lock or claim the union of what any admission wants, table by table;
  3. read again, under the locks, what can have changed; decide;
  4. give back claims that nobody won, correct provisional owners;
  5. claim refusal slots, write;
  6. append to the journal, last.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from watchword.handlers.join.approvals import ApprovalRules, Waiting, key_of, new_request
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Broken,
    Candidate,
    Fetch,
    NotJudged,
    Refusal,
    Rejudge,
    Replay,
    Theft,
    Waits,
)
from watchword.handlers.join.command_writes import write_commands
from watchword.handlers.join.deciding import (
    Effects,
    World,
    csr_claim,
    decide,
    key_claim,
    may_be_admitted,
    use_claims,
)
from watchword.handlers.join.granted_writes import use_grants
from watchword.handlers.join.outcomes import Outcomes
from watchword.handlers.join.ports import Session
from watchword.handlers.join.reading import read_again
from watchword.handlers.join.renewal_writes import write_renewals
from watchword.handlers.journal import new_event_id
from watchword.handlers.rows import (
    COMMANDS,
    DEFERRED,
    JOINED,
    REFUSED,
    Bucket,
    InboxClaim,
    NewRequest,
    Pair,
    RefusalRow,
    RequestKey,
)


async def settle(
    session: Session, candidates: Sequence[Candidate], now: datetime, outcomes: Outcomes
) -> Effects:
    """Settle candidates in the transaction that `session.begin` opened; the caller commits.

    Every candidate has a judgement; afterwards it is the one to answer with (`Rejudge`: none yet).
    Returns what the admitted ones did.
    """
    # Step 1
    expected = {c.digest: _claim(c) for c in candidates}
    ours = await session.claim_inbox([expected[digest] for digest in sorted(expected)], now)
    mine = [c for c in candidates if c.digest in ours]
    if len(mine) < len(candidates):
        await _replay(session, [c for c in candidates if c.digest not in ours])
    return await settle_claimed(session, mine, expected, now, outcomes)


async def settle_claimed(
    session: Session,
    mine: Sequence[Candidate],
    expected: dict[bytes, InboxClaim],
    now: datetime,
    outcomes: Outcomes,
) -> Effects:
    """Do steps 2 to 6 for candidates whose digests are claimed with `expected` outcomes."""
    # Steps 2 and 3
    wanted = _Wanted(mine)
    world = World(now, registered_kinds=outcomes.registered_kinds)
    await _claim_for(session, mine, wanted, world, outcomes.approvals)
    effects = decide(mine, world)

    # Step 4
    await _tidy(session, mine, expected, wanted, world, effects)

    # Step 5
    await _write(session, mine, effects, world.waiting, now, outcomes)
    return effects


async def decided(
    session: Session, mine: Sequence[Candidate], now: datetime, rules: ApprovalRules
) -> tuple[World, Effects]:
    """Do steps 2 and 3 alone, for a session that writes nothing: what the settlement would decide on."""
    world = World(now)
    await _claim_for(session, mine, _Wanted(mine), world, rules)
    return world, decide(mine, world)


def _claim(candidate: Candidate) -> InboxClaim:
    """Return the outcome that phase A expects; mostly it is the final one, and is not written twice."""
    csr = candidate.question.csr_sha256
    match candidate.judgement:
        case Admit() as admit if admit.objection is None:
            return InboxClaim(candidate.digest, JOINED, admit.node_id, csr, None, None)
        case Admit(objection=refused) if refused is not None:
            return InboxClaim(candidate.digest, REFUSED, None, csr, str(refused), None)
        case Again(admission):
            return InboxClaim(candidate.digest, JOINED, admission.node_id, csr, None, None)
        case Refusal(refused) | Theft(refused=refused):
            return InboxClaim(candidate.digest, REFUSED, None, csr, str(refused), None)
        case Fetch(stopped=None, known=known):
            return InboxClaim(candidate.digest, COMMANDS, known.node.id, csr, None, None)
        case Fetch(stopped=refused) if refused is not None:
            return InboxClaim(candidate.digest, REFUSED, None, csr, str(refused), None)
        case NotJudged(outcome, reason):
            return InboxClaim(candidate.digest, outcome, None, csr, f"join:{reason}", None)
        case Waits(not_after=not_after):
            return InboxClaim(candidate.digest, DEFERRED, None, csr, None, not_after)
        case other:
            message = f"{type(other).__name__} is not settled"
            raise RuntimeError(message)


async def _replay(session: Session, candidates: Sequence[Candidate]) -> None:
    rows = await session.read_inbox([c.digest for c in candidates])
    for candidate in candidates:
        row = rows.get(candidate.digest)
        # Gone again: its owner was rolled back or gave it up after our claim had waited for it.
        candidate.judgement = Rejudge() if row is None else Replay(row)


async def _claim_for(
    session: Session,
    mine: Sequence[Candidate],
    wanted: "_Wanted",
    world: World,
    rules: ApprovalRules,
) -> None:
    """Lock and claim what any admission wants, in the order of locks; note what was read, and what was lost."""
    now = world.now
    agains = [c.judgement.admission.csr_sha256 for c in mine if isinstance(c.judgement, Again)]
    unheard = [c.csr.sha256 for c in mine if c.csr is not None and may_be_admitted(c)]
    admits = [c.judgement for c in mine if isinstance(c.judgement, Admit)]
    possible = [a for a in admits if a.objection is None]
    tokens = sorted({token for a in admits for token in a.staged.spends})
    if tokens:
        world.tokens = await session.lock_tokens(tokens)
    stolen = {c.judgement.contested.node.id for c in mine if isinstance(c.judgement, Theft)}
    fetches = [c.judgement for c in mine if isinstance(c.judgement, Fetch)]
    asking = sorted({fetch.known.node.id for fetch in fetches})
    rekeyed = (a.rekeys.id for a in possible if a.rekeys is not None)
    nodes = sorted(stolen.union(asking, rekeyed))
    if nodes:
        world.nodes = await session.lock_nodes(nodes)
    await _claim_requests(session, mine, world, rules)
    granted = [a for a in possible if a.grant is not None]
    if grants := sorted({a.grant for a in granted if a.grant is not None}):
        world.grants = await session.lock_grants(grants)
    lost: list[Pair] = []
    if wanted.admissions:
        world.admissions_won = await session.claim_admissions(wanted.admissions)
        lost = [pair for pair in wanted.admissions if pair not in world.admissions_won]
    if wanted.uses:
        world.uses_won = await session.claim_uses(wanted.uses, now)
        if granted and (spent := [pair for pair in wanted.uses if pair not in world.uses_won]):
            world.use_holders = await session.use_holders(spent)
    if wanted.bindings:
        world.bindings_won = await session.claim_bindings(wanted.bindings)
        if missed := [pair for pair in wanted.bindings if pair not in world.bindings_won]:
            world.binding_holders = await session.bindings(missed)
    if asking:
        reported = sorted(UUID(report.id) for fetch in fetches for report in fetch.reports)
        world.commands = await session.lock_commands(asking, reported)
    if lost:
        world.admission_holders = await session.holders_of_admissions(lost)
    if csrs := sorted({*agains, *unheard, *(subject for kind, subject in lost if kind == "csr")}):
        world.admitted_csrs = await session.admissions(csrs)
    proven = [s for a in admits for s in a.ban_subjects]
    proven += [s for c in mine if isinstance(c.judgement, Waits) for s in c.judgement.ban_subjects]
    proven += [s for fetch in fetches for s in fetch.ban_subjects]
    if subjects := sorted(set(proven)):
        world.banned = await session.banned(subjects)
    world.seen = await read_again(
        session, [c for c in mine if isinstance(c.judgement, Admit | Waits) and c.seen]
    )


async def _claim_requests(
    session: Session,
    mine: Sequence[Candidate],
    world: World,
    rules: ApprovalRules,
) -> None:
    """Claim and lock the join requests that candidates wait on or consume; count who waits already."""
    waits = [(c, c.judgement) for c in mine if isinstance(c.judgement, Waits)]
    consumed = {
        key_of(c, c.judgement.approval[0])
        for c in mine
        if isinstance(c.judgement, Admit) and c.judgement.approval is not None
    }
    if not waits and not consumed:
        return
    wanted = {c.digest: new_request(c, w.approval, new_event_id()) for c, w in waits}
    waiting = Waiting(rules, world.now)
    if wanted:
        tenants = sorted({request.tenant for request in wanted.values()})
        await session.lock_places(tenants)
        first: dict[RequestKey, NewRequest] = {}
        for request in wanted.values():
            first.setdefault(request.key, request)
        expires_at = world.now + rules.ttl
        waiting.made = await session.claim_requests(list(first.values()), world.now, expires_at)
        waiting.counted(await session.waiting(tenants))
        for key in waiting.made:
            waiting.not_yet(first[key])
    keys = sorted({request.key for request in wanted.values()} | consumed)
    waiting.rows = dict(await session.lock_requests(keys))
    world.waiting, world.wanted_requests = waiting, wanted


class _Wanted:
    """The union of what admissions want, with provisional owners: the first candidate that wants each."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.admissions: dict[Pair, UUID] = {}
        self.uses: dict[Pair, tuple[UUID, datetime | None]] = {}
        self.bindings: dict[Pair, UUID] = {}
        for candidate in candidates:
            admit = candidate.judgement
            if not isinstance(admit, Admit):
                continue
            # Also of what an objection refuses: the CSR and the key are looked at before that.
            self.admissions.setdefault(csr_claim(candidate), admit.node_id)
            self.admissions.setdefault(key_claim(candidate), admit.node_id)
            if admit.objection is not None:
                continue
            for pair, expires in use_claims(candidate, admit).items():
                self.uses.setdefault(pair, (admit.node_id, expires))
            for pair in admit.bindings:
                self.bindings.setdefault(pair, admit.node_id)


async def _tidy(
    session: Session,
    mine: Sequence[Candidate],
    expected: dict[bytes, InboxClaim],
    wanted: _Wanted,
    world: World,
    effects: Effects,
) -> None:
    undone = [c.digest for c in mine if isinstance(c.judgement, Rejudge | Broken)]
    await session.give_back(
        sorted(world.admissions_won - effects.admissions.keys()),
        sorted(world.uses_won - effects.uses.keys()),
        sorted(world.bindings_won - effects.bindings.keys()),
        undone,
    )
    if (waiting := world.waiting) is not None:
        await session.settle_requests(
            sorted(waiting.made - waiting.kept.keys()),
            [waiting.renewed[key] for key in sorted(waiting.renewed)],
            sorted(waiting.consumed),
            world.now,
            world.now + waiting.rules.ttl,
        )
    settled = [_claim(c) for c in mine if not isinstance(c.judgement, Rejudge | Broken)]
    await session.correct(
        {
            pair: node
            for pair, node in effects.admissions.items()
            if pair in world.admissions_won and wanted.admissions.get(pair) != node
        },
        {pair: use for pair, use in effects.uses.items() if wanted.uses.get(pair) != use},
        {
            pair: node
            for pair, node in effects.bindings.items()
            if pair in world.bindings_won and wanted.bindings.get(pair) != node
        },
        [claim for claim in settled if claim != expected[claim.digest]],
    )


async def _write(
    session: Session,
    mine: Sequence[Candidate],
    effects: Effects,
    waiting: Waiting | None,
    now: datetime,
    outcomes: Outcomes,
) -> None:
    rekeyed = sorted(
        c.judgement.rekeys.id
        for c in effects.admitted
        if isinstance(c.judgement, Admit) and c.judgement.rekeys is not None
    )
    superseded: Mapping[UUID, Sequence[bytes]] = {}
    if rekeyed:
        superseded = await session.supersede(rekeyed, now, "re-keyed")
    if effects.grants:
        await use_grants(session, effects, now)
    writes, entries = outcomes.joins(effects, superseded, now)
    if waiting is not None:
        entries += outcomes.waiting(waiting, now)
    if effects.admitted:
        await session.write(writes, now)
    if effects.renewed or effects.thefts:
        entries += await write_renewals(session, effects, outcomes, now)
    if effects.fetched:
        entries += await write_commands(session, effects, outcomes, now)
    refusals = outcomes.refusals(mine)
    if refusals:
        need: dict[Bucket, int] = {}
        for refusal in refusals:
            need[refusal.bucket] = need.get(refusal.bucket, 0) + 1
        granted = dict(await session.claim_slots(need))
        rows: list[RefusalRow] = []
        for refusal in refusals:
            published = granted.get(refusal.bucket, 0) > 0
            if published:
                granted[refusal.bucket] -= 1
                entries.append(outcomes.refusal_entry(refusal, now))
            rows.append(refusal.row(published=published))
        await session.write_refusals(rows, outcomes.worker, now)

    # Step 6
    if entries:
        await session.append(entries)
