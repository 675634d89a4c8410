"""The decision under the locks: a pure function, in arrival order, over an overlay.

Only admitted requests leave effects in the overlay, so the result equals judging the requests one
after another. A request whose reads an admitted one changed, or that lost a claim it had read as
free, is verified again by the next attempt (`Rejudge`), not refused.

The order of checks, the first that fails is the reason (numbers of DESIGN, section 5):
  3.  the CSR was admitted meanwhile: that admission's answer; the public key is another node's;
  4.  the token's state under its lock; what else was read is as it was;
  7.  bans;
  8. to 11. the objection that was noted before;
  9.  the node is as it was read;
  10. bindings; and last what may be used once.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from watchword.handlers.errors import Refused, tried_digest
from watchword.handlers.join.approvals import Waiting, key_of
from watchword.handlers.join.candidate import (
    Admit,
    Again,
    Candidate,
    Fetch,
    Judgement,
    Refusal,
    Rejudge,
    Renewal,
    Seen,
    Theft,
    Waits,
)
from watchword.handlers.join.dispatching import dispatch
from watchword.handlers.kinds import BUILT_IN
from watchword.handlers.rows import (
    AdmittedCsr,
    GrantRow,
    LockedCommand,
    NewRequest,
    NodeRow,
    Pair,
    TokenState,
)
from watchword.schemas.ids import JOIN, AttestorId, TenantId

MOST_TRIES = 100
"""A request that was verified so often and still meets changed reads is answered `UNAVAILABLE`.

More than a batch has requests: each attempt settles at least one of those that change each other's reads.
"""


@dataclass(slots=True)
class World:
    """What the locks and claims of one transaction showed."""

    now: datetime
    tokens: Mapping[str, TokenState] = field(default_factory=dict[str, TokenState])
    nodes: Mapping[UUID, NodeRow] = field(default_factory=dict[UUID, NodeRow])
    admissions_won: set[Pair] = field(default_factory=set[Pair])
    admission_holders: Mapping[Pair, UUID] = field(default_factory=dict[Pair, UUID])
    uses_won: set[Pair] = field(default_factory=set[Pair])
    bindings_won: set[Pair] = field(default_factory=set[Pair])
    binding_holders: Mapping[Pair, UUID] = field(default_factory=dict[Pair, UUID])
    banned: set[bytes] = field(default_factory=set[bytes])
    grants: Mapping[UUID, GrantRow] = field(default_factory=dict[UUID, GrantRow])
    use_holders: Mapping[Pair, UUID] = field(default_factory=dict[Pair, UUID])
    """Who has used up what candidates with a grant have lost."""
    waiting: Waiting | None = None
    wanted_requests: Mapping[bytes, NewRequest] = field(default_factory=dict[bytes, NewRequest])
    """What the waiting candidates want, by their digests."""
    admitted_csrs: Mapping[bytes, AdmittedCsr] = field(default_factory=dict[bytes, AdmittedCsr])
    commands: Mapping[UUID, Sequence[LockedCommand]] = field(
        default_factory=dict[UUID, Sequence[LockedCommand]]
    )
    """What waits for nodes that ask for it, and what they speak of, by node."""
    registered_kinds: frozenset[str] = BUILT_IN
    seen: Seen = field(default_factory=dict[tuple[str, Hashable], object])
    """What verifiers had read and no lock kept, as it is now."""

    def is_as_read(self, candidate: Candidate) -> bool:
        """Tell whether all that the candidate's verifier had read of it is still so."""
        return all(self.seen.get(key) == row for key, row in candidate.seen.items())


@dataclass(slots=True)
class Effects:
    """What the admitted requests of the batch did: the overlay, and afterwards what is to be written."""

    spends: Counter[str] = field(default_factory=Counter[str])
    admissions: dict[Pair, UUID] = field(default_factory=dict[Pair, UUID])
    uses: dict[Pair, tuple[UUID, datetime | None]] = field(
        default_factory=dict[Pair, tuple[UUID, datetime | None]]
    )
    bindings: dict[Pair, UUID] = field(default_factory=dict[Pair, UUID])
    admitted: list[Candidate] = field(default_factory=list[Candidate])
    renewed: list[Candidate] = field(default_factory=list[Candidate])
    thefts: list[tuple[Candidate, Theft]] = field(default_factory=list[tuple[Candidate, Theft]])
    fetched: list[tuple[Candidate, Fetch]] = field(default_factory=list[tuple[Candidate, Fetch]])
    by_csr: dict[bytes, Candidate] = field(default_factory=dict[bytes, Candidate])
    grants: dict[UUID, Candidate] = field(default_factory=dict[UUID, Candidate])
    """Who used which reclaim grant."""
    changed: set[tuple[str, object]] = field(default_factory=set[tuple[str, object]])


def csr_claim(candidate: Candidate) -> Pair:
    """Return the claim on a candidate's CSR."""
    if candidate.csr is None:
        message = "the candidate was not read"
        raise RuntimeError(message)
    return ("csr", candidate.csr.sha256)


def key_claim(candidate: Candidate) -> Pair:
    """Return the claim on a candidate's public key."""
    if candidate.csr is None:
        message = "the candidate was not read"
        raise RuntimeError(message)
    return ("key", candidate.csr.spki_sha256)


def use_claims(candidate: Candidate, admit: Admit) -> Mapping[Pair, datetime | None]:
    """Return the claims on what an admission uses up, with the times after which it may be used again."""
    if admit.claimed_uses is not None:
        return admit.claimed_uses
    attestor = candidate.attestor or JOIN
    claims: dict[Pair, datetime | None] = {
        (attestor, subject): expires for subject, expires in admit.staged.uses
    }
    if (proof := admit.proof) is not None:
        claims |= {(proof.attestor, subject): expires for subject, expires in proof.staged.uses}
    admit.claimed_uses = claims
    return claims


def may_be_admitted(candidate: Candidate) -> bool:
    """Tell whether a request that is about to be refused or to wait may be one of a CSR that was admitted meanwhile.

    Whoever asks twice with one CSR is judged twice at a time when partitions move. The second one reads, between the
    first one's admission and its own settlement, a token that is used up and names that are taken: by itself.
    """
    return (
        isinstance(candidate.judgement, Refusal | Waits)
        and candidate.problem is None
        and candidate.admitted_before is None
    )


def decide(candidates: Sequence[Candidate], world: World) -> Effects:
    """Set the final judgement of each candidate in arrival order and return the effects."""
    effects = Effects()
    for candidate in candidates:
        candidate.judgement = _one(candidate, world, effects)
    return effects


def _one(candidate: Candidate, world: World, effects: Effects) -> Judgement:
    judgement = candidate.judgement
    if judgement is None:
        message = "a candidate without a judgement"
        raise RuntimeError(message)
    if isinstance(judgement, Again):
        admission = judgement.admission
        return _again(world.admitted_csrs.get(admission.csr_sha256, admission), effects)
    if candidate.csr is not None and (
        candidate.csr.sha256 in effects.by_csr
        or (candidate.csr.sha256 in world.admitted_csrs and may_be_admitted(candidate))
    ):
        # Admitted by an earlier request of this very batch, or by another worker since it was looked up: then the
        # verifier may have seen half of that. The next attempt finds it in the tables.
        return Rejudge()
    if isinstance(judgement, Theft):
        return _steal(candidate, judgement, world, effects)
    if isinstance(judgement, Fetch):
        return _fetch(candidate, judgement, world, effects)
    if isinstance(judgement, Waits) and not candidate.reads & effects.changed:
        if not world.is_as_read(candidate):
            return Rejudge()
        return _wait(candidate, judgement, world)
    if not isinstance(judgement, Admit):
        return Rejudge() if candidate.reads & effects.changed else judgement

    # Step 3
    csr = csr_claim(candidate)
    if csr not in world.admissions_won:
        return _lost_csr(csr, world, effects)
    if candidate.reads & effects.changed or not world.is_as_read(candidate):
        return Rejudge()
    refusal = _refusal(candidate, judgement, world, effects)
    if refusal is not None:
        return Refusal(refusal) if isinstance(refusal, Refused) else refusal
    _admit(candidate, judgement, world, effects)
    return judgement


def _wait(candidate: Candidate, waits: Waits, world: World) -> Judgement:
    # Step 7
    if any(subject in world.banned for subject in waits.ban_subjects):
        return Refusal(Refused(JOIN, "banned", tenant_id=waits.approval.grant.tenant))
    wanted = world.wanted_requests.get(candidate.digest)
    if world.waiting is None or wanted is None:
        return Rejudge()
    return world.waiting.wait(candidate, waits, wanted)


def _steal(candidate: Candidate, theft: Theft, world: World, effects: Effects) -> Judgement:
    """Refuse a second key from one certificate; once for each certificate it has effects."""
    node = theft.contested.node
    if candidate.reads & effects.changed or world.nodes.get(node.id) != node:
        return Rejudge()
    if not theft.contested.contested:
        effects.thefts.append((candidate, theft))
        effects.changed.add(("node", node.id))
    return Refusal(theft.refused)


def _fetch(candidate: Candidate, fetch: Fetch, world: World, effects: Effects) -> Judgement:
    """Decide what a node is told; one request of a node in a batch, the next one sees what has become of it."""
    node = fetch.known.node
    if candidate.reads & effects.changed or world.nodes.get(node.id) != node:
        return Rejudge()
    if any(subject in world.banned for subject in fetch.ban_subjects):
        return Refusal(Refused(JOIN, "banned", tenant_id=TenantId(node.tenant)))
    fetch.dispatch = dispatch(
        world.commands.get(node.id, ()),
        fetch.reports,
        world.registered_kinds,
        world.now,
        is_live=fetch.stopped is None,
    )
    effects.fetched.append((candidate, fetch))
    effects.changed.add(("node", node.id))
    return fetch if fetch.stopped is None else Refusal(fetch.stopped)


def _again(admission: AdmittedCsr, effects: Effects) -> Judgement:
    if ("node", admission.node_id) in effects.changed:
        return Rejudge()  # re-keyed by an earlier request of this very batch
    return Again(admission) if admission.stands else Refusal(Refused(JOIN, "csr-reused"))


def _lost_csr(csr: Pair, world: World, effects: Effects) -> Judgement:
    admission = world.admitted_csrs.get(csr[1])
    if admission is None:
        # A claim without its certificate cannot be: both commit together.
        return Rejudge()
    return _again(admission, effects)


def _refusal(
    candidate: Candidate, admit: Admit, world: World, effects: Effects
) -> Refused | Judgement | None:
    """Return why an admission cannot stand, or None."""
    attestor = candidate.attestor or JOIN
    tenant = admit.admission.tenant

    # Step 3
    key = key_claim(candidate)
    owner = effects.admissions.get(key) or world.admission_holders.get(key)
    if owner is not None and owner != admit.node_id:
        return Refused(JOIN, "key-in-use", tenant_id=tenant)
    if owner is None and key not in world.admissions_won:
        return Rejudge()  # lost to somebody who has given it up since

    # Step 4
    spends = admit.staged.spends
    for token_id in dict.fromkeys(spends):
        uses = spends.count(token_id)
        state = world.tokens.get(token_id)
        reason: str | None = None
        if state is None or state.revoked:
            reason = "revoked"
        elif state.expires_at is not None and state.expires_at <= world.now:
            reason = "expired"
        elif state.uses_left - effects.spends[token_id] < uses:
            reason = "used-up"
        if reason is not None:
            tried = tried_digest(attestor, token_id)
            return Refused(attestor, reason, tenant_id=tenant, tried=tried)

    # Step 7
    if any(subject in world.banned for subject in admit.ban_subjects):
        return Refused(JOIN, "banned", tenant_id=tenant)

    # Steps 8 to 11
    if admit.objection is not None:
        return admit.objection

    # Step 9
    if admit.rekeys is not None and world.nodes.get(admit.rekeys.id) != admit.rekeys:
        return Rejudge()

    # Step 10: the bindings were read as free, or as this node's; anything else is a change
    for pair in admit.bindings:
        holder = effects.bindings.get(pair) or world.binding_holders.get(pair)
        if holder is None and pair in world.bindings_won:
            continue
        if holder != admit.node_id:  # none: lost to somebody who has given it up since
            return Rejudge()

    # Step 12
    if (whose := _replayed(candidate, admit, world, effects)) is not None:
        return Refused(whose, "replayed", tenant_id=tenant)
    return _unapproved(candidate, admit, world)


def _replayed(
    candidate: Candidate, admit: Admit, world: World, effects: Effects
) -> AttestorId | None:
    """Return under whose id something that counts once has counted: for anybody, unless a grant says for this node."""
    for pair in use_claims(candidate, admit):
        if pair in effects.uses or (pair not in world.uses_won and not _reuses(pair, admit, world)):
            return AttestorId(pair[0])
    return None


def _is_open(grant: UUID, world: World) -> bool:
    row = world.grants.get(grant)
    return row is not None and world.now < row.expires_at


def _reuses(pair: Pair, admit: Admit, world: World) -> bool:
    """Tell whether a grant lets the node use again what it has used up itself; note it then."""
    if admit.grant is None or world.use_holders.get(pair) != admit.node_id:
        return False
    admit.reused |= {pair}
    return True


def _unapproved(candidate: Candidate, admit: Admit, world: World) -> Judgement | None:
    """Return that grant or approval was decided otherwise, used or has expired since; else consume it."""
    if admit.grant is not None and not _is_open(admit.grant, world):
        return Rejudge()
    if admit.approval is None:
        return None
    subject, snapshot = admit.approval
    waiting = world.waiting
    if waiting is None or not waiting.consumes(key_of(candidate, subject), snapshot):
        return Rejudge()
    return None


def _admit(candidate: Candidate, admit: Admit, world: World, effects: Effects) -> None:
    (effects.renewed if isinstance(admit, Renewal) else effects.admitted).append(candidate)
    csr = csr_claim(candidate)
    effects.by_csr[csr[1]] = candidate
    effects.admissions[csr] = admit.node_id
    effects.admissions[key_claim(candidate)] = admit.node_id
    for pair, expires in use_claims(candidate, admit).items():
        if pair not in admit.reused:
            effects.uses[pair] = (admit.node_id, expires)
    if admit.grant is not None:
        effects.grants[admit.grant] = candidate
        effects.changed.add(("grant", admit.grant))
    for pair in admit.bindings:
        effects.bindings[pair] = admit.node_id
        effects.changed.add(("binding", pair))
    effects.changed.add(("node", admit.node_id))
    effects.changed.update(("subject", subject.digest) for subject in admit.admission.subjects)
    for token_id in admit.staged.spends:
        effects.spends[token_id] += 1
        # What is left is counted here; that nothing is left is for the attestor to see and to name.
        if world.tokens[token_id].uses_left <= effects.spends[token_id]:
            effects.changed.add(("token", token_id))
