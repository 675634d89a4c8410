"""Runs a `watchword` command and samples its stack: `python -m tests.benchmarks.profiled OUT worker …`.

Sampled by CPU time, a thousand times a second: it costs little, and what other processes do does
not show. Time in C counts for the Python line that called it. OUT gets one line for each stack seen
(`frame;frame;frame count`, the form that flame graphs are made of) when the process ends in good
order; `top` reads it.
"""

import signal
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from watchword.streams.cli.main import run

_EVERY_S = 0.001


class Samples:
    """Stacks, and how often each was seen."""

    def __init__(self) -> None:
        """See nothing yet."""
        self._seen: Counter[tuple[tuple[str, int], ...]] = Counter()

    def start(self) -> None:
        """Begin to look."""
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_S, _EVERY_S)

    def stop(self) -> None:
        """Look no longer."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _look(self, _: int, frame: FrameType | None) -> None:
        stack: list[tuple[str, int]] = []
        while frame is not None:
            stack.append((f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}", frame.f_lineno))
            frame = frame.f_back
        self._seen[tuple(stack)] += 1

    def write(self, file: Path) -> None:
        """Write the stacks, outermost frame first."""
        with file.open("w", encoding="utf-8") as out:
            for stack, count in self._seen.most_common():
                frames = (f"{_short(where)}:{line}" for where, line in reversed(stack))
                out.write(f"{';'.join(frames)} {count}\n")


def top(lines: Iterable[str], *, rows: int = 60) -> str:
    """Return which functions cost most, by themselves and with what they call, in percent."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = [frame.rpartition(":")[0] for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    total = sum(own.values()) or 1
    shown = [name for name, _ in own.most_common(rows)]
    return "\n".join(f"{own[n] / total:6.1%} {whole[n] / total:6.1%}  {n}" for n in shown)


def _short(where: str) -> str:
    path, _, name = where.rpartition(":")
    for root in ("/site-packages/", "/lib/python3", "/watchword/"):
        path = path.rpartition(root)[2]
    return f"{path}:{name}"


def main(out: str, arguments: list[str]) -> int:
    """Run the command line, write the samples to `out`, return the exit status."""
    samples = Samples()
    samples.start()
    try:
        return run(arguments)
    finally:
        samples.stop()
        samples.write(Path(out))


if __name__ == "__main__":
    if sys.argv[1] == "--top":
        print(top(Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()))  # noqa: T201 - a tool
    else:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
