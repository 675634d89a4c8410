"""Commands as processes of their own, forked from one that has imported the command line already.

A command's import takes longer than most commands do, and tests run many hundreds. What is tested is the
same: another process, with an environment, standard streams and an exit status of its own. How the command line is
started for real is shown where processes are spawned (`Site.spawned`, the fault suite, the tests of the wheel).
"""

import io
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from pkgutil import iter_modules
from tempfile import TemporaryDirectory

from tests.support.commands import Done
from watchword.streams import cli

_FORKING = get_context("forkserver")
_FORKING.set_forkserver_preload(
    [
        __name__,
        *(
            f"watchword.streams.cli.{m.name}"
            for m in iter_modules(cli.__path__)
            if m.name != "__main__"
        ),
    ]
)

_ONE_AT_A_TIME = threading.Lock()
"""To start and to reap: `multiprocessing` looks at every child when it starts one, and takes a status once."""


def completed(*arguments: str, environment: Mapping[str, str], within_s: float = 100) -> Done:
    """Run `watchword` with these arguments and nothing to read; return what came of it.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    with TemporaryDirectory(prefix="watchword-command-") as name:
        stdout, stderr = Path(name) / "stdout", Path(name) / "stderr"
        process = _FORKING.Process(
            target=_become, args=(arguments, dict(environment), str(stdout), str(stderr))
        )
        with _ONE_AT_A_TIME:
            process.start()
        try:
            if not wait([process.sentinel], timeout=within_s):
                raise subprocess.TimeoutExpired(["watchword", *arguments], within_s)
        finally:
            with _ONE_AT_A_TIME:
                if process.exitcode is None:
                    process.kill()
                    process.join()
        return Done(
            ["watchword", *arguments],
            process.exitcode or 0,
            stdout.read_text(encoding="utf-8"),
            stderr.read_text(encoding="utf-8"),
        )


def _become(
    arguments: tuple[str, ...], environment: dict[str, str], stdout: str, stderr: str
) -> None:
    """Be the command from here on: in the forked process."""
    os.environ.clear()
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the process
    for number, name, path in ((1, "stdout", stdout), (2, "stderr", stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        binary = io.FileIO(number, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(binary), encoding="utf-8"))
    sys.argv = ["watchword", *arguments]
    cli.main()
