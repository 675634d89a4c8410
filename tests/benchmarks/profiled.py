"""Runs a `watchword` command under cProfile: `python -m tests.benchmarks.profiled OUT worker …`.

For looking at hot paths; a profiled process is two to three times slower, so nothing is measured
with it. The profile is written when the process ends in good order (SIGTERM).
"""

import cProfile
import sys

from watchword.streams.cli.main import run


def main(out: str, arguments: list[str]) -> int:
    """Run the command line, write the profile to `out`, return the exit status."""
    profile = cProfile.Profile()
    try:
        return profile.runcall(run, arguments)
    finally:
        profile.dump_stats(out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
