"""An environment as an author has it: wheels, and nothing of the checkout."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.folders import ROOT

EXAMPLES = ("acme_asset", "acme_rack")


@dataclass(frozen=True)
class Installed:
    """Our wheel and those of the examples, with the libraries of this environment."""

    python: Path

    @property
    def commands(self) -> Path:
        """The folder of commands: `python`, `watchword`, and a `pip` that needs no network."""
        return self.python.parent


def clean_environment() -> dict[str, str]:
    """Return what this process was started with, without what is meant for it alone."""
    ours = ("WATCHWORD_", "PYTEST_", "PYTHON", "DATABASE_URL", "KAFKA_", "PG")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def run(command: list[str], folder: Path) -> str:
    """Run a command in a folder; fail with all that it said if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheels, and install them into an environment of their own."""
    wheels = tmp_path_factory.mktemp("wheels")
    for source in (ROOT, *(ROOT / "examples" / name for name in EXAMPLES)):
        run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)], source)
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], ROOT)
    python = folder / "bin" / "python"
    # A path that a .pth adds is not looked through for others: the checkout stays out of sight.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # Everything that a tutorial installs is here already, or in the folder where it is.
    pip = folder / "bin" / "pip"
    options = "--quiet --offline --no-deps --no-build-isolation"
    pip.write_text(
        f'#!/bin/sh\n[ "$1" = install ] && shift\n'
        f'exec "{sys.executable}" -m uv pip install {options} --python "{python}" "$@"\n'
    )
    pip.chmod(0o755)
    found = [str(wheel) for wheel in sorted(wheels.glob("*.whl"))]
    assert len(found) == 1 + len(EXAMPLES)
    run([str(pip), "install", *found], ROOT)
    where = run([str(python), "-c", "import watchword.handlers as h; print(h.__path__)"], folder)
    assert str(packages) in where
    assert str(ROOT / "handlers") not in where
    return Installed(python)
