"""The examples are what an author would ship: their wheels beside ours, their own tests, strict types."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.folders import ROOT
from tests.support.installed import EXAMPLES, Installed, run

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(900)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_passes_its_own_tests_on_our_wheel(
    example: str, installed: Installed, tmp_path: Path
) -> None:
    """With a folder `handlers` of its own where it runs, and nothing of our checkout in sight."""
    folder = tmp_path / example
    shutil.copytree(ROOT / "examples" / example, folder)
    said = run(
        [str(installed.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], folder
    )
    assert " passed" in said
    assert "failed" not in said
    assert "skipped" not in said


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_strictly_typed_against_our_wheel(
    example: str, installed: Installed, tmp_path: Path
) -> None:
    """An author's editor knows our types, or guesses."""
    folder = tmp_path / example
    shutil.copytree(ROOT / "examples" / example, folder)
    said = run([str(installed.python), "-m", "mypy", "--strict", "handlers", "tests"], folder)
    assert "Success" in said


def test_worker_finds_the_examples(installed: Installed, tmp_path: Path) -> None:
    """What an operator sees before they rely on it."""
    said = run(
        [
            str(installed.python),
            "-m",
            "watchword.streams.cli",
            "attestors",
            "list",
            "--output",
            "jsonl",
        ],
        tmp_path,
    )
    for name in EXAMPLES:
        (line,) = [one for one in said.splitlines() if name.replace("_", "-") in one]
        assert '"state": "available"' in line
        assert f'"distribution": "{name.replace("_", "-")}"' in line


def test_migrate_makes_their_tables(
    installed: Installed, empty_database: str, tmp_path: Path
) -> None:
    """An operator enables a package and migrates as ever; nothing else is to be remembered."""
    names = [name.replace("_", "-") for name in EXAMPLES]
    config = tmp_path / "watchword.toml"
    config.write_text(f"[attestors]\nenabled = {json.dumps(names)}\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    environment |= {"DATABASE_URL": empty_database, "WATCHWORD_CONFIG": str(config)}

    def watchword(*arguments: str) -> list[dict[str, object]]:
        done = subprocess.run(
            [str(installed.commands / "watchword"), *arguments, "--output", "jsonl"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    done = [(row["attestor"], row["name"]) for row in watchword("db", "migrate") if row["attestor"]]
    assert done == [("acme-asset", "tags"), ("acme-rack", "machines"), ("acme-rack", "releases")]
    assert watchword("db", "migrate") == []
    assert all(row["applied"] for row in watchword("db", "status"))
