"""`python -m tests.vectors [--folder FOLDER] [--kind KIND]`: run the real evidence alone.

The last line is `vectors: N run, N right, N wrong, N not run`. Cases are counted: a file may hold many. The status
is 1 if one is wrong, or if more than one file of twenty was not run.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support.vectors import VECTORS
from tests.vectors.judging import Entry, Kind, Outcome, Result, read_manifest
from tests.vectors.kinds import KINDS

_MOST_NOT_RUN = 0.05
_NO_EVIDENCE = ("reference",)


def run(entries: Sequence[Entry], kind: Kind) -> list[Result]:
    """Return the results of one kind; what raises, and an entry without a result, is wrong."""
    results: list[Result] = []
    wanted = [entry for entry in entries if entry.expect not in _NO_EVIDENCE]
    try:
        # One by one, so that what came before a fault counts.
        for result in kind(wanted):
            results.append(result)  # noqa: PERF402
    except Exception as error:  # noqa: BLE001 - it is the finding
        at = results[-1].entry if results else wanted[0]
        results.append(Result(at, Outcome.WRONG, "", f"after this one: {error!r}"))
    seen = {result.entry.path for result in results}
    results += [Result(e, Outcome.WRONG, "", "nobody ran it") for e in wanted if e.path not in seen]
    return results


def main(given: Sequence[str]) -> int:
    """Return 1 if a vector is judged wrongly, or too many are not judged."""
    options = dict(zip(given[::2], given[1::2], strict=True))
    root = Path(options.get("--folder", VECTORS))
    if not root.is_dir():
        print(f"there are no vectors at {root}")
        print("vectors: 0 run, 0 right, 0 wrong, 0 not run")
        return 0
    entries = read_manifest(root)
    results: list[Result] = []
    for name, kind in KINDS.items():
        if options.get("--kind", name) != name:
            continue
        mine = [entry for entry in entries if entry.kind == name]
        found = run(mine, kind) if mine else []
        results += found
        counts = Counter(result.outcome for result in found)
        said = ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome)
        print(f"{name:16} {len(mine):4} files: {said}", flush=True)
    others = Counter(entry.kind for entry in entries if entry.kind not in KINDS)
    print(
        "no attestor of ours takes: " + ", ".join(f"{k} ({n})" for k, n in sorted(others.items()))
    )
    return report(results)


def report(results: Sequence[Result]) -> int:
    """Print what is not right, and the counts; return the status."""
    for outcome in (Outcome.NOT_RUN, Outcome.WRONG):
        for result in results:
            if result.outcome is outcome and result.why:
                case = f" [{result.case}]" if result.case else ""
                print(f"{outcome.value}: {result.entry.path}{case}: {result.why}")
    counted = [result for result in results if result.outcome is not Outcome.ASIDE]
    files = {result.entry.path for result in counted}
    idle = files - {r.entry.path for r in counted if r.outcome is not Outcome.NOT_RUN}
    print(f"{len(files)} files, of which {len(idle)} were not run")
    counts = Counter(result.outcome for result in results)
    right, wrong, left, _ = (counts[outcome] for outcome in Outcome)
    print(f"vectors: {right + wrong} run, {right} right, {wrong} wrong, {left} not run")
    return 1 if wrong or len(idle) > _MOST_NOT_RUN * max(1, len(files)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
