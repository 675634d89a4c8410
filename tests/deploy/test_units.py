"""The units for systemd: as systemd reads them, hardened, and handing over what the processes read."""

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.exported import DEPLOY, exported
from watchword.streams.cli.main import make_app
from watchword.streams.settings import load
from watchword.streams.settings.sources import SECRETS

UNITS = sorted(
    path for path in (DEPLOY / "systemd").iterdir() if path.suffix not in {".md", ".conf"}
)
SERVICES = [path for path in UNITS if path.suffix == ".service"]
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSED = 20
"""Of 100, as `systemd-analyze security` counts; a service without hardening has 96."""

needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not here")


def directives(unit: Path) -> dict[str, list[str]]:
    """Return every directive of a unit with its values."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in re.findall(r"^([A-Za-z]+)=(.*)$", unit.read_text(), re.MULTILINE):
        found[name].append(value)
    return found


@pytest.fixture
def installed_units(tmp_path: Path) -> Path:
    """Return the units with a program that is here in the place of ours."""
    for unit in UNITS:
        text = unit.read_text().replace("/opt/watchword/bin/watchword", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    return tmp_path


@needs_systemd
def test_systemd_takes_every_unit(installed_units: Path) -> None:
    """A directive that is misspelt is logged once, and guards nothing."""
    assert ANALYZE is not None
    names = [unit.name for unit in UNITS]
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", *(f"./{name}" for name in names)],
        cwd=installed_units, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith("watchword")]


@needs_systemd
@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.stem)
def test_a_service_is_hardened(service: Path, installed_units: Path) -> None:
    """Who breaks into a process finds little that the kernel lets it do."""
    assert ANALYZE is not None
    done = subprocess.run(
        [ANALYZE, "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager",
         f"./{service.name}"],
        cwd=installed_units, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.stem)
def test_a_service_runs_a_command_that_there_is(service: Path) -> None:
    """A unit whose command was renamed fails on every host at once."""
    (line,) = directives(service)["ExecStart"]
    line = line.replace("$AGENT_OPTIONS", "--gateway https://join.example --token-file /token")
    make_app().parse_args(line.split()[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.stem)
def test_credentials_are_those_that_are_read(service: Path, tmp_path: Path) -> None:
    """One with another name is no secret to the process: it would start without, or not at all."""
    given = {value.partition(":")[0] for value in directives(service)["LoadCredential"]}
    named = dict(
        part.split("=")
        for value in directives(service)["Environment"]
        for part in value.split()
        if "%d/" in part
    )
    assert {value.removeprefix("%d/") for value in named.values()} == given - {
        ".".join(path) for path in SECRETS
    }
    (tmp_path / "database.url").write_text("postgresql://watchword@db/watchword")
    (tmp_path / "kafka.sasl_password").write_text("x")
    for name in {"database.url", "kafka.sasl_password"} - given:
        (tmp_path / name).unlink()
    environment = {name: value.replace("%d", str(tmp_path)) for name, value in named.items()}
    settings = load(environment=environment | {"CREDENTIALS_DIRECTORY": str(tmp_path)}).settings
    assert (settings.database.url is not None) == ("database.url" in given)
    assert (settings.kafka.sasl_password is not None) == ("kafka.sasl_password" in given)
    key = tmp_path / "console.session_key" if "console.session_key" in given else None
    assert settings.console.session_key_file == key


def test_a_role_is_given_what_it_needs_and_no_more() -> None:
    """The gateway has no database address, and nobody but the signer sees the CA key."""
    given = {
        service.stem: {value.partition(":")[0] for value in directives(service)["LoadCredential"]}
        for service in SERVICES
    }
    both = {"database.url", "kafka.sasl_password"}
    assert given["watchword-gateway"] == {"kafka.sasl_password"}
    assert given["watchword-keeper"] == {"database.url"}
    assert given["watchword-relay"] == given["watchword-worker"] == both
    assert given["watchword-console"] == both | {"console.session_key"}
    assert given["watchword-signer"] == given["watchword-agent"] == set()
    for service in SERVICES:
        users = directives(service)["User"]
        hidden = " ".join(directives(service)["InaccessiblePaths"])
        if users == ["watchword-worker"]:
            assert "/etc/watchword/ca" in hidden
        elif not users and service.stem != "watchword-agent":
            assert directives(service)["DynamicUser"] == ["yes"]


def test_the_target_starts_every_role() -> None:
    """Whoever enables one thing gets a whole deployment."""
    wanted = directives(DEPLOY / "systemd" / "watchword.target")["Wants"][0].split()
    assert {name.removesuffix(".service") for name in wanted} == set(exported())
