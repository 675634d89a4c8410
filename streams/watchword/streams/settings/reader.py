"""Reading the settings: once, in one place, all problems at once."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, SecretStr, ValidationError

from watchword.handlers.errors import ConfigRefused
from watchword.streams.settings.model import Settings, rules
from watchword.streams.settings.section import written
from watchword.streams.settings.sources import Value, config_file, gather


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings and, by dotted name, where each value that is not a default came from."""

    settings: Settings
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting for a person's eyes; a secret only says that it is set."""

    name: str
    value: Any
    source: str


def load(*, file: Path | None = None, environment: Mapping[str, str] | None = None) -> Loaded:
    """Read file and variables and return the settings; `environment` is the process's if not given.

    Raises:
        ConfigRefused: with every problem found, each naming the setting and its source.
    """
    environment = os.environ if environment is None else environment
    values, problems = gather(environment, config_file(environment, file))
    sources = {".".join(value.path): value.source for value in values}
    try:
        settings = Settings.model_validate(_tree(values, problems))
    except ValidationError as error:
        problems += [_problem(detail, sources) for detail in error.errors(include_url=False)]
        raise ConfigRefused(problems) from None
    problems += rules(settings)
    if problems:
        raise ConfigRefused(problems)
    return Loaded(settings, sources)


def _tree(values: list[Value], problems: list[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for value in values:
        at = tree
        for part in value.path[:-1]:
            inner = at.setdefault(part, {})
            if not isinstance(inner, dict):
                problems.append(f"{'.'.join(value.path)} ({value.source}): {part} is no table")
                break
            at = cast("dict[str, Any]", inner)
        else:
            at[value.path[-1]] = value.value
    return tree


def _problem(detail: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    path = [str(part) for part in detail["loc"]]
    if path[:2] == ["attestors", "limits"]:
        del path[1]
    name = ".".join(path)
    source = next((sources[known] for known in _prefixes(path) if known in sources), None) or next(
        (said for known, said in sources.items() if known.startswith(f"{name}.")), None
    )
    where = f"{name} ({source})" if source else name
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(path[-1], _siblings(path[:-1]), n=1)
        return f"{where}: no such setting" + (f"; did you mean {near[0]}?" if near else "")
    return f"{where}: {detail['msg'].removeprefix('Value error, ')}"


def _prefixes(path: list[str]) -> Iterator[str]:
    for end in range(len(path), 0, -1):
        yield ".".join(path[:end])


def _siblings(path: list[str]) -> list[str]:
    at: type[BaseModel] = Settings
    for part in path:
        field = {written(n, f): f for n, f in at.model_fields.items()}.get(part)
        annotation = None if field is None else field.annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        at = annotation
    return [written(name, field) for name, field in at.model_fields.items()]


def shown(loaded: Loaded) -> list[Shown]:
    """Return every setting with its value and source, in the order of the sections."""
    found: list[Shown] = []
    for section_name in Settings.model_fields:
        section: BaseModel = getattr(loaded.settings, section_name)
        for name, field in type(section).model_fields.items():
            dotted = f"{section_name}.{written(name, field)}"
            found.append(
                Shown(
                    dotted, _plain(getattr(section, name)), _source(dotted, section, loaded.sources)
                )
            )
    return found


def _source(dotted: str, section: BaseModel, sources: Mapping[str, str]) -> str:
    """Name where a value is from; a table may come from several places, and names them all."""
    beneath = f"{dotted}."
    if dotted == "attestors.limits":
        fields = type(section).model_fields
        own = tuple(f"attestors.{written(name, field)}." for name, field in fields.items())
        found = [
            said
            for known, said in sources.items()
            if known.startswith("attestors.") and not f"{known}.".startswith(own)
        ]
    else:
        found = [s for n, s in sources.items() if n == dotted or n.startswith(beneath)]
    return ", ".join(dict.fromkeys(found)) or "default"


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON
    match value:
        case SecretStr():
            return "[redacted]"
        case BaseModel():
            return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
        case dict():
            items = cast("dict[str, object]", value)
            return {name: _plain(inner) for name, inner in items.items()}
        case tuple():
            return [_plain(inner) for inner in cast("tuple[object, ...]", value)]
        case Path():
            return str(value)
        case _:
            return value
