"""Where values come from: the file, credentials, variables; a later source wins over an earlier one."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from watchword.streams import failpoints

PREFIX = "WATCHWORD_"

CONFIG_VARIABLE = "WATCHWORD_CONFIG"

NOT_SETTINGS = frozenset((CONFIG_VARIABLE, failpoints.VARIABLE))
"""Variables of ours that are read elsewhere."""

SHORT_FORMS: dict[str, tuple[str, str]] = {
    "DATABASE_URL": ("database", "url"),
    "LOG_FORMAT": ("log", "format"),
    "LOG_LEVEL": ("log", "level"),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("tracing", "endpoint"),
    "OTEL_EXPORTER_OTLP_HEADERS": ("tracing", "headers"),
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ("tracing", "traces_endpoint"),
    "OTEL_SDK_DISABLED": ("tracing", "disabled"),
    "OTEL_SERVICE_NAME": ("tracing", "service_name"),
} | {
    f"KAFKA_{name.upper()}": ("kafka", name)
    for name in (
        "bootstrap_servers",
        "client_id",
        "security_protocol",
        "sasl_mechanism",
        "sasl_username",
        "sasl_password",
        "sasl_password_file",
        "ssl_ca_location",
        "ssl_certificate_location",
        "ssl_key_location",
    )
}
"""What other tools call the same thing. Other variables that begin with `KAFKA_` are not ours."""

SECRETS: tuple[tuple[str, str], ...] = (
    ("database", "url"),
    ("kafka", "sasl_password"),
    ("tracing", "headers"),
)
"""Also read from `$CREDENTIALS_DIRECTORY/<section>.<name>` and from the file named in `<name>_file`."""

_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGUSER")


@dataclass(frozen=True, slots=True)
class Value:
    """One value as it was found. `rank` orders the sources; the greatest wins."""

    path: tuple[str, ...]
    value: Any
    source: str
    rank: int


def config_file(environment: Mapping[str, str], chosen: Path | None) -> Path | None:
    """Return the one file that is read: the chosen one, else the first that exists of the usual places."""
    if chosen is not None:
        return chosen
    if named := environment.get(CONFIG_VARIABLE):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    for place in (Path(home) / "watchword/config.toml", Path("/etc/watchword/config.toml")):
        if place.is_file():
            return place
    return None


def agent_state(environment: Mapping[str, str], *, uid: int) -> Path:
    """Return where an agent of this user keeps its state, if it is not told."""
    if uid == 0:
        return Path("/var/lib/watchword")
    home = environment.get("XDG_STATE_HOME") or f"{environment.get('HOME', '')}/.local/state"
    return Path(home) / "watchword"


def gather(environment: Mapping[str, str], file: Path | None) -> tuple[list[Value], list[str]]:
    """Return every value that is set anywhere, and what is wrong with the sources themselves."""
    problems: list[str] = []
    found = list(_from_file(file, problems))
    for name, path in SHORT_FORMS.items():
        if text := environment.get(name):
            found.append(Value(path, text, f"variable {name}", 1))
    found += _from_credentials(environment, problems)
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            found.append(Value(_path(name), environment[name], f"variable {name}", 3))
    found += list(_from_named_files(found, problems))
    if not any(value.path == ("database", "url") for value in found) and any(
        name in environment for name in _LIBPQ
    ):
        found.append(Value(("database", "url"), "postgres://", "libpq's variables", 0))
    return sorted(found, key=lambda value: value.rank), problems


def _path(variable: str) -> tuple[str, ...]:
    parts = variable.removeprefix(PREFIX).lower().split("__")
    if len(parts) >= 3 and parts[0] == "attestors":  # noqa: PLR2004 - attestors, id, field
        parts[1] = parts[1].replace("_", "-")
    return tuple(parts)


def _from_file(file: Path | None, problems: list[str]) -> Iterator[Value]:
    if file is None:
        return
    source = f"file {file}"
    try:
        with file.open("rb") as opened:
            tree = tomllib.load(opened)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{source}: {error}")
        return
    if isinstance(kafka := tree.get("kafka"), dict):
        tree["kafka"] = dict(_flat(cast("dict[str, Any]", kafka)))
    for path, value in _leaves(tree):
        if path in (("kafka", "sasl_password"), ("tracing", "headers")) or (
            path == ("database", "url") and _has_password(value)
        ):
            name = ".".join(path)
            problems.append(f"{name}: no password in {source}; name a file in {name}_file")
            continue
        yield Value(path, value, source, 0)


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Take `"bootstrap.servers"`, `bootstrap.servers` and `bootstrap_servers` for the same."""
    for key, value in table.items():
        name = before + key.replace(".", "_")
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{name}_")
        else:
            yield name, value


def _leaves(
    table: Mapping[str, Any], before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        path = (*before, key)
        if isinstance(value, dict) and value:
            yield from _leaves(cast("dict[str, Any]", value), path)
        else:
            yield path, value


def _has_password(url: object) -> bool:
    try:
        return isinstance(url, str) and (
            urlsplit(url).password is not None or "password=" in urlsplit(url).query
        )
    except ValueError:
        return True


def _from_credentials(environment: Mapping[str, str], problems: list[str]) -> list[Value]:
    """Read what systemd's `LoadCredential=` or a mounted secret put there."""
    directory = environment.get("CREDENTIALS_DIRECTORY")
    if not directory:
        return []
    found: list[Value] = []
    for path in SECRETS:
        name = ".".join(path)
        file = Path(directory) / name
        if file.is_file() and (text := _secret(file, f"credential {name}", problems)) is not None:
            found.append(Value(path, text, f"credential {name}", 2))
    return found


def _from_named_files(found: list[Value], problems: list[str]) -> Iterator[Value]:
    for section, name in SECRETS:
        named = [value for value in found if value.path == (section, f"{name}_file")]
        given = [value for value in found if value.path == (section, name)]
        if not named:
            continue
        last = max(named, key=lambda value: value.rank)
        if any(value.rank == last.rank for value in given):
            problems.append(f"{section}.{name} and {section}.{name}_file: only one of them")
        elif (
            text := _secret(Path(str(last.value)), f"{section}.{name}_file", problems)
        ) is not None:
            yield Value((section, name), text, f"file {last.value}", last.rank)


def _secret(file: Path, name: str, problems: list[str]) -> str | None:
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{name}: {error if isinstance(error, OSError) else 'not UTF-8'}")
        return None
