"""Attestors that other packages register: found by entry point, loaded by name."""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint

from watchword.handlers.attestor import Attestor
from watchword.handlers.definition import check_attestor, is_attestor
from watchword.handlers.errors import ConfigRefused
from watchword.streams.registered import Registration, registered

GROUP = "watchword.attestors"
"""The group of entry points that packages register attestors in."""


def registrations(installed: Iterable[EntryPoint] | None = None) -> Mapping[str, Registration]:
    """Return what is registered, by name; nothing of it is imported yet."""
    return registered(GROUP, installed)


def load(registration: Registration) -> Attestor:
    """Import an attestor: the entry point is one, or a class or function that returns one without arguments.

    Raises:
        ConfigRefused: two packages register the name, it cannot be imported, or is no usable attestor.
    """
    name = registration.name
    loaded = registration.load()
    try:
        made: object = loaded if is_attestor(loaded) or not callable(loaded) else loaded()
    except Exception as error:
        raise registration.unusable(error) from error
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
