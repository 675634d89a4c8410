"""Provers that other packages register, for machines that join by an attestor that is not one of ours."""

import inspect
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TypeGuard

from watchword.handlers.errors import BadArgument, ConfigRefused, WatchwordError
from watchword.handlers.prover import Prover, ProverSettings
from watchword.streams.registered import Registration, registered

GROUP = "watchword.provers"
"""The group of entry points that packages register provers in, each under its attestor's id."""


def provers(installed: Iterable[EntryPoint] | None = None) -> Mapping[str, Registration]:
    """Return what is registered, by the attestor's id; nothing of it is imported yet."""
    return registered(GROUP, installed)


def read_settings(options: Sequence[str], file: Path | None) -> ProverSettings:
    """Return what a prover is told: the values of a TOML file, and `key=value` options, which are text.

    Raises:
        BadArgument: the file cannot be used, an option has no name, or something is said twice.
    """
    settings: dict[str, object] = {}
    if file is not None:
        try:
            settings |= tomllib.loads(file.read_text("utf-8"))
        except OSError as error:
            message = f"{file}: {error.strerror or 'cannot be read'}"
            raise BadArgument(message) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            # Not what is wrong with it: that would quote what may be a secret.
            message = f"{file} is not TOML"
            raise BadArgument(message) from None
    for option in options:
        name, separator, value = option.partition("=")
        if not separator or not name:
            message = "--option is name=value"
            raise BadArgument(message)
        if name in settings:
            message = f"{name[:60]!r} is said twice"
            raise BadArgument(message)
        settings[name] = value
    return settings


def load_prover(registration: Registration, settings: ProverSettings) -> Prover:
    """Return the prover that a package makes of these settings.

    Raises:
        BadArgument: it does not like the settings.
        ConfigRefused: it cannot be imported, breaks, or makes no prover of this id.
    """
    name = registration.name
    make = registration.load()
    if not callable(make):
        raise ConfigRefused([f"{name} ({registration.place}) is nothing that makes a prover"])
    try:
        made: object = make(settings)
    except WatchwordError:
        raise
    except Exception as error:
        # The message may quote a setting; the type does not.
        raise ConfigRefused(
            [
                f"{name} ({registration.place}) makes no prover of these settings: {type(error).__name__}"
            ]
        ) from error
    if not _is_prover(made):
        raise ConfigRefused(
            [
                f"{name} ({registration.place}) makes no prover: no id, or no `async def` evidence and answer"
            ]
        )
    if made.id != name:
        shown = repr(made.id)[:80]
        raise ConfigRefused([f"{name} ({registration.place}) makes a prover of {shown}"])
    return made


def _is_prover(made: object) -> TypeGuard[Prover]:
    return isinstance(getattr(made, "id", None), str) and all(
        inspect.iscoroutinefunction(getattr(made, name, None)) for name in ("evidence", "answer")
    )
