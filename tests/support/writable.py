"""Which folders a role writes to, as deploy/README.md says."""

import re
from pathlib import Path

from tests.support.folders import ROOT

_ROW = re.compile(r"^\| `watchword ([a-z ]+)` \|(.*)\|$", re.MULTILINE)


def declared() -> dict[str, list[Path]]:
    """Return what each command writes to."""
    text = (ROOT / "deploy" / "README.md").read_text("utf-8")
    return {
        command: [Path(folder) for folder in re.findall(r"`([^`]+)`", folders)]
        for command, folders in _ROW.findall(text)
    }
