"""The statements of workers, by name and file."""

from dataclasses import dataclass

from watchword.handlers.store.statements import load


@dataclass(frozen=True, slots=True)
class JoinStatements:
    """One field for each statement of joining."""

    look: str
    admissions: str
    read_tokens: str
    read_nodes: str
    read_bindings: str
    claim_inbox: str
    read_inbox: str
    lock_tokens: str
    lock_nodes: str
    lock_node_bindings: str
    claim_admissions: str
    holders_of_admissions: str
    claim_uses: str
    claim_bindings: str
    banned: str
    give_back_admissions: str
    give_back_uses: str
    give_back_bindings: str
    give_back_inbox: str
    correct_admissions: str
    correct_uses: str
    correct_bindings: str
    correct_inbox: str
    supersede: str
    rekey: str
    write: str
    write_subjects: str
    write_refusals: str


@dataclass(frozen=True, slots=True)
class AttemptStatements:
    """One field for each statement of requests that a worker may have ended with."""

    take_up: str
    forget_old: str
    suspects: str
    count_try: str
    clear: str


@dataclass(frozen=True, slots=True)
class SlotStatements:
    """One field for each statement of refusal slots."""

    lacking: str
    make: str
    claim: str
    reopens: str


@dataclass(frozen=True, slots=True)
class RequestStatements:
    """One field for each statement of joins that wait."""

    read: str
    claim: str
    lock: str
    lock_places: str
    waiting: str
    give_back: str
    renew: str
    consume: str


@dataclass(frozen=True, slots=True)
class AnchorStatements:
    """One field for each read of what operators have written down."""

    images: str
    discovery_sites: str
    cloud_accounts: str
    tpm_endorsements: str
    tpm_policies: str
    certificates: str
    nodes_by_subject: str


@dataclass(frozen=True, slots=True)
class RenewalStatements:
    """One field for each statement of renewals and of changes of state."""

    read: str
    renew: str
    contest: str
    revoke: str
    evict: str


@dataclass(frozen=True, slots=True)
class CommandStatements:
    """One field for each statement of commands to nodes."""

    open_of: str
    lock: str
    change: str
    mark_sent: str
    sent_with: str
    activate: str
    standing: str
    add: str
    add_payload: str
    count_open: str
    list: str
    show: str
    node_of: str
    lock_due: str
    prune: str
    waiting: str


@dataclass(frozen=True, slots=True)
class ReclaimStatements:
    """One field for each statement of reclaim grants."""

    read: str
    lock: str
    use: str
    use_holders: str
    unbind: str
    forget_hardware: str
    add: str
    list: str
    lock_one: str
    revoke: str


COMMANDS = load(CommandStatements, "commands.sql")
RECLAIMS = load(ReclaimStatements, "reclaims.sql")
RENEWALS = load(RenewalStatements, "renewals.sql")
JOINS = load(JoinStatements, "joins.sql")
ATTEMPTS = load(AttemptStatements, "attempts.sql")
SLOTS = load(SlotStatements, "slots.sql")
REQUESTS = load(RequestStatements, "requests.sql")
ANCHORS = load(AnchorStatements, "anchors.sql")
