"""`agent status`: where this machine stands, for people and for scripts. Reads only, and asks nobody."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from watchword.schemas.times import parse_rfc3339, rfc3339
from watchword.streams.agent.answers import read_answer
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import NotBootstrapped
from watchword.streams.agent.exchange import Exchange
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.trust import Trust, load_trust

State = Literal["not-bootstrapped", "bootstrapped", "joining", "joined"]
Waiting = Literal["to-send", "for-answer", "for-approval", "to-follow"]


@dataclass(frozen=True, slots=True)
class TrustStatus:
    """Whom the agent believes."""

    pin: str
    trust_domain: str
    key_set_version: int
    trust_bundle_version: int | None


@dataclass(frozen=True, slots=True)
class ExchangeStatus:
    """The join that is under way."""

    csr_sha256: str
    """Hexadecimal: what an operator compares before approving."""
    attestor: str | None
    role: str | None
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What the machine is."""

    node_id: str
    tenant: str
    pool: str
    site: str | None
    role: str
    serial: str
    not_before: str
    not_after: str
    renew_after: str
    is_expired: bool
    """By the machine's clock, which `clock_is_wrong` may say something about."""
    is_due: bool
    current: str
    """The folder of key, certificate, chain and trust bundle."""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """All of it. There is nothing secret in it."""

    state: State
    time: str
    """When this was looked at, RFC 3339."""
    clock_is_wrong: bool
    trust: TrustStatus | None
    exchange: ExchangeStatus | None
    node: NodeStatus | None

    def as_json(self) -> dict[str, Any]:
        """Return plain values with stable names in camelCase, `schemaVersion` first."""
        return {"schemaVersion": 1, **_camel(asdict(self))}


def status(state: Path, *, clock: AgentClock | None = None) -> AgentStatus:
    """Return where the machine stands, whether an agent is running or not.

    Raises:
        StateUnusable: the state directory holds what cannot be read.
    """
    clock = clock or AgentClock()
    keystore = Keystore(state)
    try:
        trust = load_trust(keystore, clock)
    except NotBootstrapped:
        trust = None
    exchange = keystore.exchange()
    node = _node(keystore, clock)
    if node is not None:
        stage: State = "joined"
    elif exchange is not None:
        stage = "joining"
    else:
        stage = "not-bootstrapped" if trust is None else "bootstrapped"
    return AgentStatus(
        state=stage,
        time=rfc3339(clock.now()),
        clock_is_wrong=clock.is_behind,
        trust=None if trust is None else _trust(trust),
        exchange=None if exchange is None else _exchange(exchange, trust),
        node=node,
    )


def _trust(trust: Trust) -> TrustStatus:
    return TrustStatus(
        trust.pin,
        trust.key_set.trust_domain,
        trust.key_set.version,
        None if trust.bundle is None else trust.bundle.version,
    )


def _exchange(exchange: Exchange, trust: Trust | None) -> ExchangeStatus:
    current = exchange.round()
    csr_sha256 = exchange.csr_sha256.hex()
    if current is None:
        return ExchangeStatus(csr_sha256, None, None, "to-send")
    waiting: Waiting = "for-answer"
    if current.answer is not None and trust is not None:
        answer = read_answer(current.answer.encode(), trust=trust, exchange=exchange, sent=current)
        is_approval = answer and answer.deferred and answer.deferred.type == "approval"
        waiting = "for-approval" if is_approval else "to-follow"
    return ExchangeStatus(csr_sha256, current.attestor, current.role, waiting)


def _node(keystore: Keystore, clock: AgentClock) -> NodeStatus | None:
    identity = keystore.identity()
    if identity is None:
        return None
    node, now = identity.node, clock.now()
    return NodeStatus(
        node_id=node.node_id,
        tenant=node.tenant,
        pool=node.pool,
        site=node.site,
        role=node.role,
        serial=node.serial,
        not_before=node.not_before,
        not_after=node.not_after,
        renew_after=node.renew_after,
        is_expired=now >= parse_rfc3339(node.not_after),
        is_due=now >= parse_rfc3339(node.renew_after),
        current=str(identity.folder),
    )


def _camel(values: dict[str, Any]) -> dict[str, Any]:
    return {_camel_name(name): _camel_value(value) for name, value in values.items()}


def _camel_value(value: object) -> object:
    return _camel(cast("dict[str, Any]", value)) if isinstance(value, dict) else value


def _camel_name(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)
