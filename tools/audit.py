"""Ask for security advisories on locked packages: `make audit`.

Exit 0 if every package was asked about and none has an advisory; 1 if one has; 75 (try again) if any of them could not be
asked about, which is no pass: *not checked*.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PASSED, FOUND, NOT_CHECKED = 0, 1, 75


def names(lock: str) -> set[str]:
    """Return the packages of a lock, normalised."""
    lines = (line for line in lock.splitlines() if line[:1].isalnum())
    return {line.partition("==")[0].lower().replace("_", "-") for line in lines}


def verdict(report: dict[str, Any] | None, wanted: Iterable[str]) -> tuple[int, list[str]]:
    """Return the exit status and what to say of pip-audit's report; None if it has written none."""
    if report is None:
        return NOT_CHECKED, ["not checked: no advisories could be had"]
    asked = {one["name"].lower().replace("_", "-"): one for one in report["dependencies"]}
    said = [
        f"{name} {one['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'no release'}"
        for name, one in sorted(asked.items())
        for flaw in one.get("vulns", ())
    ]
    skipped = sorted(name for name in wanted if "vulns" not in asked.get(name, {}))
    if said:
        return FOUND, said
    if skipped:
        return NOT_CHECKED, [f"not checked: {', '.join(skipped)}"]
    return PASSED, [f"{len(asked)} packages, no advisory"]


def audit(lock: Path) -> tuple[int, list[str]]:
    """Run pip-audit on a lock."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "report.json"
        subprocess.run(  # noqa: S603 - its arguments are ours
            [
                sys.executable, "-m", "pip_audit", "--strict", "--disable-pip", "--require-hashes",
                "--requirement", str(lock), "--format", "json", "--output", str(output),
            ],
            check=False,
        )  # fmt: skip
        report = (
            json.loads(output.read_text()) if output.exists() and output.stat().st_size else None
        )
    # A lock is for every platform; markers leave some out here.
    wanted = names(lock.read_text()) if report is None else _here(lock, report)
    return verdict(report, wanted)


def _here(lock: Path, report: dict[str, Any]) -> set[str]:
    """Return what of a lock is for this platform: without those whose marker pip-audit has judged."""
    marked = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in lock.read_text().splitlines()
        if line[:1].isalnum() and ";" in line
    }
    asked = {one["name"].lower().replace("_", "-") for one in report["dependencies"]}
    return names(lock.read_text()) - (marked - asked)


def main() -> int:
    """Audit each lock that is named; the worst status wins, and an advisory is the worst."""
    worst = PASSED
    for name in sys.argv[1:]:
        status, said = audit(Path(name))
        for line in said:
            print(f"{name}: {line}")  # noqa: T201 - this is its output
        worst = FOUND if FOUND in (worst, status) else max(worst, status)
    return worst


if __name__ == "__main__":
    sys.exit(main())
