"""The attestors that the configuration names, and what each may return."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from watchword.handlers.errors import ConfigRefused
from watchword.handlers.join.policy import JoinPolicy, Limits, known_kind
from watchword.schemas.ids import ROLES, AttestorId
from watchword.streams.settings import Settings

GROUP = "watchword.attestors"
"""The group of entry points that packages register attestors in."""


def enabled_attestors(
    settings: Settings, installed: Iterable[EntryPoint] | None = None
) -> list[object]:
    """Return the attestors of `attestors.enabled`; half of them is none.

    An entry point is an attestor, or a function without parameters that returns one.

    Raises:
        ConfigRefused: one is not installed, or its package cannot be imported.
    """
    found = {e.name: e for e in (entry_points(group=GROUP) if installed is None else installed)}
    problems: list[str] = []
    attestors: list[object] = []
    for name in settings.attestors.enabled:
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            problems.append(f"attestors.enabled: {name} is not installed (there is: {known})")
            continue
        try:
            loaded = found[name].load()
            attestors.append(
                loaded if hasattr(loaded, "verify") and hasattr(loaded, "id") else loaded()
            )
        except Exception as error:  # noqa: BLE001 - whatever a stranger's package raises
            problems.append(f"attestors.enabled: {name}: {type(error).__name__}: {error}")
    if problems:
        raise ConfigRefused(problems)
    return attestors


def join_policy(settings: Settings) -> JoinPolicy:
    """Return the limits of `[attestors.<id>]`.

    Raises:
        ConfigRefused: a kind is not registered.
    """
    problems: list[str] = []
    limits: dict[AttestorId, Limits] = {}
    for name, section in settings.attestors.limits.items():
        problems += [
            f"attestors.{name}.kinds: no such kind: {kind}"
            for kind in section.kinds or ()
            if not known_kind(kind)
        ]
        limits[AttestorId(name)] = Limits(
            tenants=_set(section.tenants),
            pools=_set(section.pools),
            sites=_set(section.sites),
            roles=ROLES if section.roles is None else frozenset(section.roles),
            kinds=_set(section.kinds),
            unrestricted_kinds=section.unsafe_unrestricted_kinds,
        )
    if problems:
        raise ConfigRefused(problems)
    return JoinPolicy(limits)


def _set(names: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
