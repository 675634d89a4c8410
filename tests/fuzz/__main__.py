"""`python -m tests.fuzz TARGET SECONDS`: coverage-guided fuzzing of a verifier with atheris.

The corpus is kept in `build/fuzz/<target>`, what breaks the invariant beside it. Without a target, all in turn,
each in a process of its own, because libFuzzer ends its process.
"""

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.support.folders import ROOT

NAMES = (
    "x509pop",
    "image",
    "image-proof",
    "discovery",
    "discovery-signed",
    "cloud-aws",
    "cloud-gcp",
    "cloud-azure",
    "tpm",
    "tpm-structures",
    "tpm-log",
    "tpm-certificate",
)
_MOST_BYTES = 8 * 1024


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one target; the process ends, with status 0 if nothing was found."""
    import atheris  # noqa: PLC0415 - not every platform has it

    with atheris.instrument_imports(include=["watchword"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - instrumented as it is imported
        from tests.fuzz.tpm import TPM_TARGETS  # noqa: PLC0415 - the same

    corpus = ROOT / "build" / "fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    target = {**TARGETS, **TPM_TARGETS}[name]()
    (corpus / "good").write_bytes(target.good)

    def once(data: bytes) -> None:
        target.hold(data)

    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-max_len={_MOST_BYTES}",
            f"-artifact_prefix={corpus.parent}/{name}-",
            "-print_final_stats=1",
            str(corpus),
        ],
        once,
    )
    atheris.Fuzz()


def main(given: Sequence[str]) -> int:
    """Return how many targets found something."""
    if len(given) == 2:
        fuzz(given[0], int(given[1]))
        return 0
    if find_spec("atheris") is None:
        print("there is no atheris for this platform; tests/unit fuzzes with hypothesis")
        return 0
    seconds = given[0] if given else "10"
    found = 0
    for name in NAMES:
        print(f"::: {name}, {seconds} s", flush=True)
        command = [sys.executable, "-m", "tests.fuzz", name, seconds]
        found += subprocess.run(command, check=False, cwd=Path(ROOT)).returncode != 0
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
