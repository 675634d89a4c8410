"""Packages of strangers, as far as `importlib.metadata` looks: a folder for the module search path."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.folders import ROOT


def plugged_in(folder: Path, group: str, entries: Mapping[str, str]) -> str:
    """Write what registers these entry points, by name; return a `PYTHONPATH` with it and with the tests."""
    information = folder / "plugged-in" / "strangers-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    lines = [f"{name} = {place}" for name, place in entries.items()]
    (information / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    return os.pathsep.join((str(information.parent), str(ROOT)))
