"""`python -m tests.fuzz TARGET SECONDS`: coverage-guided fuzzing of a verifier or a decoder with atheris.

It begins with seeds that are made by code. The corpus is kept in `build/fuzz/<target>`, what breaks the invariant beside
it. Without a target, all of them, two at a time, each in a process of its own, because libFuzzer ends its process.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.util import find_spec

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
    "request",
    "claims",
    "response",
    "response-signed",
    "csr",
    "certificate",
    "cms",
    "jwt",
    "hpke",
    "fetch",
    "renewal",
    "command",
    "command-signed",
)
_AT_ONCE = 2
_SUMMARY = "stat::number_of_executed_units"
_MOST_BYTES = 8 * 1024


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one target; the process ends, with status 0 if nothing was found."""
    import atheris  # noqa: PLC0415 - not every platform has it

    with atheris.instrument_imports(include=["watchword"]):
        from tests.fuzz.decoders import DECODERS  # noqa: PLC0415 - instrumented as it is imported
        from tests.fuzz.seeds import seeds_of  # noqa: PLC0415 - the same
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - the same
        from tests.fuzz.tpm import TPM_TARGETS  # noqa: PLC0415 - the same

    corpus = ROOT / "build" / "fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    target = {**TARGETS, **TPM_TARGETS, **DECODERS}[name]()
    for seed in (*seeds_of(target.good), *getattr(target, "seeds", ())):
        if len(seed) <= _MOST_BYTES:
            (corpus / sha256(seed).hexdigest()[:40]).write_bytes(seed)

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

    def run(name: str) -> bool:
        command = [sys.executable, "-m", "tests.fuzz", name, seconds]
        done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
        is_clean = done.returncode == 0
        # libFuzzer says much, and all of it on standard error.
        lines = (done.stdout + done.stderr).splitlines()
        told = lines if not is_clean else [line for line in lines if line.startswith(_SUMMARY)]
        print("\n".join([f"::: {name}, {seconds} s", *told]), flush=True)
        return is_clean

    with ThreadPoolExecutor(_AT_ONCE) as at_once:
        return list(at_once.map(run, NAMES)).count(False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
