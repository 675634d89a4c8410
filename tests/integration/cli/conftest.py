"""The command line on a database of its own."""

import os
from pathlib import Path

import pytest

from tests.support.command_line import completed
from tests.support.commands import Command, Done
from watchword.streams.settings.sources import SHORT_FORMS


@pytest.fixture
def environment(database: str, tmp_path: Path) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("WATCHWORD_", "PG")) and name not in SHORT_FORMS
    }
    return clean | {
        "DATABASE_URL": database,
        "HOME": str(tmp_path),
        "WATCHWORD_KEYS__DIRECTORY": str(tmp_path / "keys"),
        "WATCHWORD_SIGNER__SOCKET": str(tmp_path / "signer.sock"),
    }


@pytest.fixture
def watchword(environment: dict[str, str]) -> Command:
    def run(*arguments: str, code: int = 0) -> Done:
        done = completed(*arguments, environment=environment)
        assert done.returncode == code, done.stderr
        return done

    return run
