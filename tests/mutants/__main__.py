"""`python -m tests.mutants MODULE [TEST ...]`: change a module in one place at a time, and see that a test fails.

cosmic-ray changes files where they are, so it works on a copy in `build/mutants`. What survives is printed as a
difference; the run fails unless `explained.txt` says why it may.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.folders import ROOT

_HANDLERS = "handlers/watchword/handlers"
_UNIT = "tests/unit/handlers"
TESTS: dict[str, tuple[str, ...]] = {
    f"{_HANDLERS}/attestors/join_token/verifier.py": (
        f"{_UNIT}/attestors/test_join_token_verifier.py",
    ),
    f"{_HANDLERS}/attestors/image/verifier.py": (
        f"{_UNIT}/attestors/test_hostile_evidence.py",
        "tests/integration/attestors/test_image.py",
    ),
    f"{_HANDLERS}/attestors/discovery/verifier.py": (
        f"{_UNIT}/attestors/test_discovery.py",
        f"{_UNIT}/attestors/test_hostile_evidence.py",
        "tests/integration/attestors/test_discovery.py",
    ),
    f"{_HANDLERS}/attestors/x509pop/verifier.py": (f"{_UNIT}/attestors/test_x509pop.py",),
    f"{_HANDLERS}/attestors/cloud_iid/verifier.py": (f"{_UNIT}/attestors/cloud_iid",),
    f"{_HANDLERS}/attestors/tpm/verifier.py": (f"{_UNIT}/attestors/tpm",),
    f"{_HANDLERS}/join/deciding.py": (f"{_UNIT}/join/test_deciding.py",),
    f"{_HANDLERS}/join/settlement.py": (
        "tests/integration/join/test_join_token.py",
        "tests/integration/join/test_races.py",
    ),
}
"""The tests that have to notice, unless others are named: the quickest that show the module's promises."""

_COPIED = ("schemas", "handlers", "streams", "tests", "examples", "pyproject.toml")
_EXPLAINED = Path(__file__).with_name("explained.txt")
_TIMEOUT_S = 120.0


def main(given: Sequence[str]) -> int:
    """Return 0 if every change was noticed, or is explained."""
    if not given or (given[0] not in TESTS and len(given) == 1):
        print("give one of these modules, or another and its tests:", *TESTS, sep="\n  ")
        return 2
    module, tests = given[0], list(given[1:]) or list(TESTS[given[0]])
    folder = ROOT / "build" / "mutants"
    shutil.rmtree(folder, ignore_errors=True)
    for name in _COPIED:
        _copy(ROOT / name, folder / name)
    config, session = folder / "cosmic-ray.toml", folder / "session.sqlite"
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", *tests]
    config.write_text(
        f"""[cosmic-ray]
module-path = {json.dumps(module)}
timeout = {_TIMEOUT_S}
excluded-modules = []
test-command = {json.dumps(" ".join(pytest))}
[cosmic-ray.distributor]
name = "local"
"""
    )
    _check_copy(folder, module)
    for order in (("init", config, session), ("baseline", config), ("exec", config, session)):
        if _cosmic_ray(folder, *map(str, order)).returncode:
            print(f"cosmic-ray {order[0]} failed: do the tests pass?")
            return 2
    return _told(folder, module)


def _told(folder: Path, module: str) -> int:
    """Print what survived, and return how many of these nobody has explained."""
    explained = set(_explained(module))
    noticed = survived = open_ = 0
    lines = _cosmic_ray(folder, "dump", "session.sqlite", is_quiet=True).stdout.splitlines()
    for item, result in map(json.loads, lines):
        if result is None or result["test_outcome"] != "survived":
            noticed += 1
            continue
        survived += 1
        place = item["mutations"][0]
        line = (ROOT / module).read_text().splitlines()[place["start_pos"][0] - 1].strip()
        is_explained = line in explained
        open_ += not is_explained
        print(f"::: {'explained' if is_explained else 'SURVIVED'} {place['operator_name']}")
        print(result["diff"] or line)
    print(f"mutants of {module}: {noticed} noticed, {survived} survived, {open_} without a word")
    return int(open_ > 0)


def _explained(module: str) -> Iterator[str]:
    for text in _EXPLAINED.read_text().splitlines():
        if not text.startswith("#") and text:
            name, line, _ = (part.strip() for part in text.split(" | ", 2))
            if name == module:
                yield line


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join(str(folder / name) for name in ("schemas", "handlers", "streams"))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _check_copy(folder: Path, module: str) -> None:
    """See that tests import the copy; raises `RuntimeError`, since nothing would ever be noticed otherwise."""
    name = ".".join(Path(module).with_suffix("").parts[1:])
    code = f"import importlib; print(importlib.import_module({name!r}).__file__)"
    found = subprocess.check_output(
        [sys.executable, "-c", code], cwd=folder, env=_environment(folder), text=True
    ).strip()
    if found != str(folder / module):
        message = f"tests would import {found}"
        raise RuntimeError(message)


def _cosmic_ray(
    folder: Path, *arguments: str, is_quiet: bool = False
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(Path(sys.executable).with_name("cosmic-ray")), *arguments],
        cwd=folder,
        env=_environment(folder),
        check=False,
        text=True,
        stdout=subprocess.PIPE if is_quiet else None,
    )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "build"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
