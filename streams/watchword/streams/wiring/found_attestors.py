"""Which attestors there are, where each comes from, and why one is not used: for operators' eyes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from typing import Literal

from watchword.handlers.attestor import Attestor, Reason
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.handlers.catalog import Catalog
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.ids import Role
from watchword.streams.registered import Registration
from watchword.streams.settings import Settings
from watchword.streams.wiring.attestors import BUILT_IN, enabled_attestors, join_policy
from watchword.streams.wiring.strangers import load, registrations

State = Literal["enabled", "available", "skipped"]

_OURS: tuple[type, ...] = (
    JoinTokenAttestor,
    X509PopAttestor,
    ImageAttestor,
    DiscoveryAttestor,
    TpmAttestor,
    CloudIidAttestor,
)
_DISTRIBUTION = "watchword"
_NO_TABLE = "no table [attestors.{name}]: it may admit nobody"


@dataclass(frozen=True, slots=True)
class Found:
    """One attestor. What is `skipped` says why in `problem`; a problem of others is something to know."""

    id: str
    state: State
    distribution: str | None
    distribution_version: str | None
    place: str
    version: str | None = None
    roles: tuple[Role, ...] = ()
    reasons: tuple[Reason, ...] = ()
    uses_tx: bool = False
    problem: str | None = None

    def row(self) -> dict[str, object]:
        """Return it as one row of a result."""
        return {
            "id": self.id,
            "state": self.state,
            "version": self.version,
            "roles": list(self.roles),
            "distribution": self.distribution,
            "distribution_version": self.distribution_version,
            "place": self.place,
            "uses_tx": self.uses_tx,
            "reasons": [
                {"name": r.name, "code": r.code, "severity": r.severity, "sentence": r.sentence}
                for r in self.reasons
            ],
            "problem": self.problem,
        }


def found_attestors(
    settings: Settings, installed: Iterable[EntryPoint] | None = None
) -> list[Found]:
    """Return ours and then those that packages register; importing a package runs its code."""
    enabled = set(settings.attestors.enabled) | {"join-token"}
    found = [_ours(kind, settings, enabled) for kind in _OURS]
    registered = registrations(installed)
    found += [_strangers(one, settings, enabled) for _, one in sorted(registered.items())]
    missing = sorted(enabled - {one.id for one in found})
    return found + [
        Found(name, "skipped", None, None, "", problem="enabled, and not installed")
        for name in missing
    ]


def check_attestors(
    settings: Settings,
    installed: Sequence[EntryPoint] | None = None,
    *,
    trust_domain: str = "check.invalid",
) -> list[str]:
    """Return what keeps a worker with these settings from starting, as it would say it; nothing if it starts."""
    problems: list[str] = []
    try:
        attestors = enabled_attestors(settings, installed, trust_domain=trust_domain)
        if not any(getattr(one, "id", None) == "join-token" for one in attestors):
            attestors.append(JoinTokenAttestor())
        Catalog(attestors)
    except ConfigRefused as refused:
        problems += refused.problems
    try:
        join_policy(settings)
    except ConfigRefused as refused:
        problems += refused.problems
    return problems


def without_table(settings: Settings) -> list[str]:
    """Return the enabled attestors that may admit nobody, because nothing says what they may."""
    tables = set(settings.attestors.limits)
    tables |= {
        name for name in BUILT_IN if getattr(settings.attestors, name.replace("-", "_"), None)
    }
    return [name for name in dict.fromkeys(settings.attestors.enabled) if name not in tables]


def _ours(kind: type, settings: Settings, enabled: set[str]) -> Found:
    name: str = getattr(kind, "id", "")
    try:
        ours = version(_DISTRIBUTION)
    except PackageNotFoundError:  # run from a checkout that nobody installed
        ours = None
    return Found(
        name,
        "enabled" if name in enabled else "available",
        _DISTRIBUTION,
        ours,
        f"{kind.__module__}:{kind.__qualname__}",
        version=getattr(kind, "version", None),
        roles=tuple(sorted(getattr(kind, "roles", ()))),
        reasons=tuple(getattr(kind, "reasons", ())),
        problem=_NO_TABLE.format(name=name) if name in without_table(settings) else None,
    )


def _strangers(one: Registration, settings: Settings, enabled: set[str]) -> Found:
    where = (one.distribution, one.version, one.place)
    if one.name in BUILT_IN:
        return Found(one.name, "skipped", *where, problem="the id is one of Watchword's own")
    try:
        attestor: Attestor = load(one)
    except ConfigRefused as refused:
        return Found(one.name, "skipped", *where, problem="; ".join(refused.problems))
    return Found(
        one.name,
        "enabled" if one.name in enabled else "available",
        *where,
        version=attestor.version,
        roles=tuple(sorted(attestor.roles)),
        reasons=tuple(getattr(attestor, "reasons", ())),
        uses_tx=bool(getattr(attestor, "uses_tx", False)),
        problem=_NO_TABLE.format(name=one.name) if one.name in without_table(settings) else None,
    )
