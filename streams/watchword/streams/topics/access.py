"""Who may do what in Kafka: pure, from the principals that the deployment names.

Each role gets the least that it works with. Kafka authorises topics and groups, never keys: whoever may write to
`join.requests` can write any request, and whoever may read `join.responses` reads all of them (the seal and the
signature are what protects those), and a topic of refusals is read whole or not at all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from watchword.schemas.topics import (
    JOIN_REFUSED,
    JOIN_REFUSED_OCSF,
    JOIN_REQUESTS,
    JOIN_REQUESTS_DLQ,
    JOIN_RESPONSES,
    NODE_EVENTS,
    TRUST_BUNDLE,
    tenant_refusals_topic,
)
from watchword.streams.topics.plan import Step

Operation = Literal["read", "write", "describe"]
Resource = Literal["topic", "group"]
Pattern = Literal["literal", "prefixed"]

PRODUCE_QUOTA = "producer_byte_rate"


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """One thing that a principal may do. Reading or writing a topic includes describing it."""

    principal: str
    resource: Resource
    name: str
    pattern: Pattern
    operation: Operation


@dataclass(frozen=True, slots=True)
class Access:
    """The principals of each role, as the authorizer names them: `User:…`."""

    agents: tuple[str, ...] = ()
    """Machines that speak to Kafka themselves, without a gateway."""
    gateways: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()
    consoles: tuple[str, ...] = ()
    siems: tuple[str, ...] = ()
    tenant_siems: Mapping[str, str] = field(default_factory=dict[str, str])
    """By tenant: who reads that tenant's own topic, and nothing else."""
    tenant_topics: tuple[str, ...] = ()
    """Tenants that have a topic of their own."""
    worker_group: str = "watchword-verifier"
    siem_group: str = "siem"
    """What the names of consumer groups begin with: `siem-` of who reads all, `siem.<tenant>.` of who reads one's."""
    produce_bytes_per_s: Mapping[str, int] = field(default_factory=dict[str, int])
    """Quota by principal."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody is named: then nothing is looked at and nothing is changed."""
        return not (set(rules(self)) or self.produce_bytes_per_s)


def rules(access: Access) -> Iterator[Rule]:
    """Yield everything that somebody needs."""
    for one in access.agents + access.gateways:
        # No group: both read with assigned partitions.
        yield Rule(one, "topic", JOIN_REQUESTS, "literal", "write")
        yield Rule(one, "topic", JOIN_RESPONSES, "literal", "read")
        yield Rule(one, "topic", TRUST_BUNDLE, "literal", "read")
    for one in access.workers:
        yield Rule(one, "topic", JOIN_REQUESTS, "literal", "read")
        yield Rule(one, "group", access.worker_group, "literal", "read")
        yield Rule(one, "topic", JOIN_RESPONSES, "literal", "write")
        yield Rule(one, "topic", JOIN_REQUESTS_DLQ, "literal", "write")
    for one in access.relays:
        own = [tenant_refusals_topic(tenant) for tenant in access.tenant_topics]
        for topic in (NODE_EVENTS, JOIN_REFUSED, JOIN_REFUSED_OCSF, *own):
            yield Rule(one, "topic", topic, "literal", "write")
    for one in access.consoles:
        # How far the workers are behind, and no record.
        yield Rule(one, "topic", JOIN_REQUESTS, "literal", "describe")
        yield Rule(one, "group", access.worker_group, "literal", "describe")
    for one in access.siems:
        yield Rule(one, "topic", JOIN_REFUSED, "literal", "read")
        yield Rule(one, "topic", JOIN_REFUSED_OCSF, "literal", "read")
        yield Rule(one, "group", f"{access.siem_group}-", "prefixed", "read")
    for tenant, one in access.tenant_siems.items():
        yield Rule(one, "topic", tenant_refusals_topic(tenant), "literal", "read")
        yield Rule(one, "group", f"{access.siem_group}.{tenant}.", "prefixed", "read")


@dataclass(frozen=True, slots=True)
class FoundAccess:
    """What Kafka has: its rules on our topics and groups, and quotas by principal."""

    rules: frozenset[Rule]
    quotas: Mapping[str, float]
    foreign: Sequence[Rule] = ()
    """Rules on our topics that are none of ours, such as an operator's own; they stay."""


def missing_rules(access: Access, found: FoundAccess) -> list[Rule]:
    """Return the rules that have to be made."""
    return sorted(set(rules(access)) - found.rules)


def changed_quotas(access: Access, found: FoundAccess) -> dict[str, int]:
    """Return the quotas that have to be set."""
    return {
        principal: rate
        for principal, rate in access.produce_bytes_per_s.items()
        if found.quotas.get(principal) != rate
    }


def access_plan(access: Access, found: FoundAccess) -> list[Step]:
    """Return all differences. What Kafka allows beyond ours is told as `kept`: nobody's access is taken away."""
    steps = [
        Step(rule.name, "set", f"{rule.resource} {rule.pattern}", "-", _said(rule))
        for rule in missing_rules(access, found)
    ]
    steps += [
        Step(principal, "set", PRODUCE_QUOTA, _number(found.quotas.get(principal)), str(rate))
        for principal, rate in sorted(changed_quotas(access, found).items())
    ]
    wanted = set(rules(access))
    surplus = sorted({rule for rule in (*found.rules, *found.foreign) if rule not in wanted})
    steps += [Step(rule.name, "kept", f"{rule.resource} {rule.pattern}", _said(rule), "-") for rule in surplus]  # fmt: skip
    return steps


def ours(topics: Iterable[str], access: Access) -> frozenset[tuple[str, str]]:
    """Return the resources whose rules are looked at: kind and name."""
    own = {("topic", topic) for topic in topics}
    return frozenset(own | {(rule.resource, rule.name) for rule in rules(access)})


def _said(rule: Rule) -> str:
    return f"{rule.principal} may {rule.operation}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
