"""Runs the tests against one changed module, in a fork of a process that has imported everything else.

A start of pytest costs seconds, most of them imports. Here they are paid once: modules that do not lead to the changed one are in memory
when the process forks; that one, and whatever imports it, is imported anew in each fork, and no file is changed. The limits of a fork
are the kernel's: a change that hangs or eats memory is noticed, too.
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Literal, NoReturn

import pytest

from tests.mutants.changes import compiled

_WALL_S = 300
_CPU_S = 30
_MEMORY_BYTES = 4 << 30

_OPTIONS = ("-x", "-q", "-o", "timeout=0", "--assert=plain", "-p", "no:cacheprovider")
_PLUGINS = ("-p", "pytest_asyncio.plugin", "-p", "pytest_timeout")
"""All that unit tests need; to look for the others is half of a start."""


Verdict = Literal["noticed", "survived", "hung"]
"""`hung`: no answer for so long that either the change or a busy machine is to blame."""


class NotRunError(Exception):
    """pytest could not run the tests at all, which says nothing about a change."""


class _HeldError(Exception):
    """The changed module is not to be imported yet; no `ImportError`, which modules may get over."""


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return compiled(self._source, self.path)


class _Finder:
    """Answers for one module: with a source, or, as long as there is none, with an error."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.source: str | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != self.name:
            return None
        if self.source is None:
            raise _HeldError
        return spec_from_file_location(
            fullname, self.path, loader=_Loader(fullname, str(self.path), self.source)
        )


class Forks:
    """Forks that run the same tests on different sources of one module."""

    def __init__(self, name: str, path: Path, tests: Sequence[str]) -> None:
        """Take the module's dotted name and file, and pytest's arguments."""
        self._finder = _Finder(name, path)
        self._tests = tests

    def prepare(self) -> None:
        """Import what the tests import, except what leads to the module; then see that they pass as it stands.

        Raises:
            NotRunError: they do not pass, or do not import the module.
        """
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        names = self._imported()
        if self._finder.name not in names:
            message = f"these tests do not import {self._finder.name}"
            raise NotRunError(message)
        sys.meta_path.insert(0, self._finder)
        for name in names:
            with suppress(Exception):
                importlib.import_module(name)
        if self._finder.name in sys.modules:
            message = f"{self._finder.name} is imported already"
            raise NotRunError(message)
        gc.collect()
        gc.freeze()  # else pytest looks through all of it in each fork
        if self.judge(self._finder.path.read_text()) != "survived":
            message = "the tests fail on the module as it stands"
            raise NotRunError(message)

    def judge(self, source: str) -> Verdict:
        """Tell whether a test fails on this source, or the tests do not end.

        Raises:
            NotRunError: pytest ran no test.
        """
        self._finder.source = source
        try:
            status = _forked(self._run)
        finally:
            self._finder.source = None
        if status in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            message = f"pytest ended with {status}"
            raise NotRunError(message)
        if status == -signal.SIGALRM:
            return "hung"
        return "survived" if status == pytest.ExitCode.OK else "noticed"

    def _run(self) -> int:
        return int(pytest.main([*_OPTIONS, *_PLUGINS, *self._tests]))

    def _imported(self) -> list[str]:
        """Return the names of all modules that a run of the tests has imported, in the order it did."""
        reading, writing = os.pipe()

        def run() -> int:
            os.close(reading)
            status = self._run()
            with os.fdopen(writing, "w") as told:
                json.dump(list(sys.modules) if status == pytest.ExitCode.OK else [], told)
            return status

        pid = _fork(run)
        os.close(writing)
        with os.fdopen(reading) as heard:
            text = heard.read()
        os.waitpid(pid, 0)
        names: list[str] = json.loads(text or "[]")
        if not names:
            message = "the tests do not pass"
            raise NotRunError(message)
        return names


def _forked(run: Callable[[], int]) -> int:
    """Return the exit status of a fork, negative for the signal that ended it."""
    _, status = os.waitpid(_fork(run), 0)
    return os.waitstatus_to_exitcode(status)


def _fork(run: Callable[[], int]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _end(run)
    return pid


def _end(run: Callable[[], int]) -> NoReturn:
    """Run in a fork, silently and within limits that the kernel keeps."""
    status = int(pytest.ExitCode.INTERNAL_ERROR)
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_WALL_S)
        status = run()
    finally:
        os._exit(status)
