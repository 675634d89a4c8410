"""The last release, as `tests/migrations/last_release` names it, from its own source on the dependencies of this one."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.folders import ROOT

_NAMED = ROOT / "tests" / "migrations" / "last_release"
_SOURCES = ("schemas", "handlers", "streams")


def is_here() -> bool:
    """Tell whether this clone has the commit."""
    return _git("cat-file", "-e", _commit()).returncode == 0


def unpacked(folder: Path) -> str:
    """Unpack it into a folder, and return the `PYTHONPATH` with which it runs.

    Raises:
        subprocess.CalledProcessError: this clone does not have it.
        RuntimeError: another one would run.
    """
    folder = folder.resolve()
    archive = _git("archive", "--format=tar", _commit(), *_SOURCES)
    archive.check_returncode()
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    path = os.pathsep.join(str(folder / part) for part in _SOURCES)
    for part in _SOURCES:
        code = f"import watchword.{part}; print(list(watchword.{part}.__path__)[0])"
        where = subprocess.check_output(
            [sys.executable, "-c", code], env={"PATH": os.defpath, "PYTHONPATH": path}, text=True
        )
        if not where.startswith(str(folder)):
            message = f"{part} of the last release is {where}"
            raise RuntimeError(message)
    return path


def _commit() -> str:
    return _NAMED.read_text().strip()


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["git", *arguments],  # noqa: S607 - the one on PATH
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
