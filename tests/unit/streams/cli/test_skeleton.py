"""`watchword attestors new` writes a package to go on from, and overwrites nothing."""

import ast
import tomllib
from pathlib import Path

import pytest

from watchword.handlers.errors import BadArgument, Conflict
from watchword.streams.cli.skeleton_files import write_skeleton

OURS = frozenset(("tpm", "join-token"))


@pytest.mark.parametrize("name", ["acme-asset", "x", "acme-2x", "reason", "wj"])
def test_files_are_whole_whatever_the_name(tmp_path: Path, name: str) -> None:
    """An author's first minute is no syntax error."""
    folder = write_skeleton(name, tmp_path, OURS)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    package = name.replace("-", "_")
    assert [str(file.relative_to(folder)) for file in files] == [
        "README.md",
        "pyproject.toml",
        f"src/{package}/__init__.py",
        f"src/{package}/make_key.py",
        f"src/{package}/prover.py",
        f"src/{package}/py.typed",
        f"src/{package}/verifier.py",
        "tests/conftest.py",
        f"tests/test_{package}.py",
    ]
    for file in files:
        text = file.read_text("utf-8")
        assert "{{" not in text
        if file.suffix == ".py":
            ast.parse(text)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    entry = project["project"]["entry-points"]["watchword.attestors"]
    assert entry == {name: f"{package}.verifier:from_environment"}


@pytest.mark.parametrize(
    "name",
    ["Acme", "acme_asset", "2acme", "", "a" * 64, "../acme", "class", "json", "tpm", "renew"],
)
def test_name_that_would_stand_in_the_way_is_refused(tmp_path: Path, name: str) -> None:
    """An id, a package, or a folder somewhere else."""
    with pytest.raises(BadArgument):
        write_skeleton(name, tmp_path, OURS)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(tmp_path: Path) -> None:
    """A second run must not undo an afternoon."""
    folder = write_skeleton("acme", tmp_path, OURS)
    mine = folder / "src" / "acme" / "verifier.py"
    mine.write_text("mine")
    with pytest.raises(Conflict):
        write_skeleton("acme", tmp_path, OURS)
    assert mine.read_text() == "mine"
