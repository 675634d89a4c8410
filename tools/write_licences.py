"""Write docs/reference/licences.md: under which licence each package is that the wheel brings with it."""

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "licences.md"

_HEAD = """\
# Licences

<!-- Written by tools/write_licences.py; run `make licences`. -->

Watchword is under the Apache License 2.0. These packages come with its extras `server` and `otel`, in the versions of `requirements-server.lock`; each is under its own licence,
as its metadata says. A package that is not for this platform is listed without one.

| package | version | licence |
|---|---|---|
"""


def licence(name: str) -> str:
    """Return the licence that a package's metadata names; empty if it is not installed."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return ""
    if expression := found.get("License-Expression"):
        return expression
    trove = [
        line.rsplit(" :: ", 1)[-1]
        for line in found.get_all("Classifier") or ()
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    if trove:
        return ", ".join(trove)
    first = (found.get("License") or "").strip().splitlines()
    return first[0] if first else ""


def page() -> str:
    """Return the page."""
    lock = (ROOT / "requirements-server.lock").read_text()
    rows = [
        f"| {name} | {version} | {licence(name)} |"
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", lock, re.MULTILINE)
    ]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.exit(0)
