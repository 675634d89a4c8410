"""Attestors that other packages register: found by entry point, loaded by name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from watchword.handlers.attestor import Attestor
from watchword.handlers.definition import check_attestor, is_attestor
from watchword.handlers.errors import ConfigRefused

GROUP = "watchword.attestors"
"""The group of entry points that packages register attestors in."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One entry point of the group."""

    name: str
    """The attestor's id: what `attestors.enabled` and machines say."""
    place: str
    """Module and attribute, such as `acme_asset:attestor`."""
    distribution: str | None
    version: str | None
    entry: EntryPoint
    also: tuple[str, ...] = ()
    """Other distributions that register the same name."""


def registrations(installed: Iterable[EntryPoint] | None = None) -> Mapping[str, Registration]:
    """Return what is registered, by name; nothing of it is imported yet."""
    found: dict[str, Registration] = {}
    for entry in entry_points(group=GROUP) if installed is None else installed:
        distribution = entry.dist
        one = Registration(
            entry.name,
            entry.value,
            None if distribution is None else distribution.name,
            None if distribution is None else distribution.version,
            entry,
        )
        if (first := found.get(entry.name)) is not None:
            other = one.distribution or one.place
            one = Registration(
                first.name,
                first.place,
                first.distribution,
                first.version,
                first.entry,
                (*first.also, other),
            )
        found[entry.name] = one
    return found


def load(registration: Registration) -> Attestor:
    """Import an attestor: the entry point is one, or a class or function that returns one without arguments.

    Raises:
        ConfigRefused: two packages register the name, it cannot be imported, or is no usable attestor.
    """
    name = registration.name
    if registration.also:
        others = ", ".join((registration.distribution or registration.place, *registration.also))
        raise ConfigRefused([f"{name} is registered by several packages: {others}"])
    try:
        loaded: object = registration.entry.load()
        made: object = loaded if is_attestor(loaded) or not callable(loaded) else loaded()
    except Exception as error:
        message = f"{name} ({registration.place}) cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigRefused([message]) from error
    if not is_attestor(made):
        kind = type(made).__name__
        raise ConfigRefused(
            [
                f"{name} ({registration.place}) is no attestor: {kind} without id, version, roles or verify"
            ]
        )
    attestor = check_attestor(made)
    if attestor.id != name:
        message = f"{name} ({registration.place}) is registered under another name than its id, {attestor.id}"
        raise ConfigRefused([message])
    return attestor
