"""Putting a join service together; public for hosts that run the service themselves."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.catalog import Catalog
from watchword.handlers.crypto.join_crypto import JoinCrypto
from watchword.handlers.join.answering import Answering
from watchword.handlers.join.approvals import ApprovalRules
from watchword.handlers.join.engine import Engine
from watchword.handlers.join.issuing import Validity
from watchword.handlers.join.judging import Judge, JudgingOptions
from watchword.handlers.join.observer import Observer, Unobserved
from watchword.handlers.join.outcomes import Outcomes
from watchword.handlers.join.policy import JoinPolicy, Limits
from watchword.handlers.join.ports import JoinStore
from watchword.handlers.join.tracing import Tracing
from watchword.schemas.ids import AttestorId

TOKEN_LIMITS = Limits(unrestricted_kinds=True)
"""What `join-token` may return where nothing else is configured: whoever made the token said it."""


@dataclass(frozen=True, slots=True)
class JoinEvents:
    """How the events of this service are signed off. `worker` is its stable name."""

    worker: str
    source: str = "/watchword/verifier"


@dataclass(frozen=True, slots=True)
class JoinClock:
    """The times that the deployment has chosen; the time itself is the database's (`watchword.now()`)."""

    lifetime: timedelta = timedelta(days=7)
    renew_fraction: float = 2 / 3
    verify_seconds: float = 2.0
    retry_after_seconds: int = 30
    approval_ttl: timedelta = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class JoinSeams:
    """What a host may watch or hold on to; nothing by default."""

    policy: JoinPolicy = field(default_factory=JoinPolicy)
    observer: Observer = field(default_factory=Unobserved)
    before_commit: Callable[[], None] = lambda: None
    waiting_per_tenant: int = 1000
    waiting_per_site: int = 200
    evicts_on_theft: bool = True
    """Whether a second key that is renewed from one certificate costs the node its place, or is only told."""
    tracing: Tracing | None = None


def create_join_service(
    database: JoinStore,
    clock: JoinClock,
    events: JoinEvents,
    crypto: JoinCrypto,
    attestors: Iterable[object] = (),
    seams: JoinSeams | None = None,
) -> Engine:
    """Return a service that judges joins with these attestors.

    `attestors` is any mixed list: what is not an attestor is skipped with a log line, and the
    built-in `join-token` is kept unless the list has one of that id.

    Raises:
        ConfigRefused: two attestors of one id, a reserved or malformed id, a bad version, unknown roles,
            reasons that are malformed or clash.
    """
    seams = seams or JoinSeams()
    given = list(attestors)
    if not any(getattr(found, "id", None) == "join-token" for found in given):
        given.append(JoinTokenAttestor())
    catalog = Catalog(given)
    limits = {AttestorId("join-token"): TOKEN_LIMITS, **seams.policy.attestors}
    policy = JoinPolicy(limits, seams.policy.registered_kinds)
    validity = Validity(clock.lifetime, clock.renew_fraction)
    return Engine(
        database,
        Judge(
            catalog,
            crypto,
            policy,
            JudgingOptions(
                validity, clock.verify_seconds, clock.retry_after_seconds, seams.tracing
            ),
        ),
        Outcomes(
            catalog,
            worker=events.worker,
            source=events.source,
            approvals=ApprovalRules(
                clock.approval_ttl, seams.waiting_per_tenant, seams.waiting_per_site
            ),
            evicts_on_theft=seams.evicts_on_theft,
            registered_kinds=policy.registered_kinds,
        ),
        Answering(
            crypto,
            renew_fraction=clock.renew_fraction,
            retry_after_seconds=clock.retry_after_seconds,
        ),
        crypto,
        seams.observer,
        worker=events.worker,
        before_commit=seams.before_commit,
    )
