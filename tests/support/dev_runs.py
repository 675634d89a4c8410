"""`watchword dev` as a process of an environment, until its machines have joined and it waits for somebody."""

import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_ENDS_WITHIN_S = 60


@dataclass(frozen=True)
class Developing:
    """A deployment that runs."""

    data: Path
    gateway: str
    pin: str

    @property
    def config(self) -> Path:
        """The configuration of its processes."""
        return self.data / "watchword.toml"

    @property
    def dsn(self) -> str:
        """PostgreSQL's URL."""
        return (self.data / "run" / "database.url").read_text()


@contextmanager
def developing(
    command: Path, data: Path, environment: Mapping[str, str], *options: str
) -> Generator[Developing]:
    """Run `watchword dev` with these options, and stop it again."""
    with subprocess.Popen(
        [str(command), "dev", "--data", str(data), *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**environment, "NO_COLOR": "1"},
    ) as process:  # fmt: skip
        try:
            said = _until_it_waits(process)
            yield Developing(data, said["gateway"], said["pin"])
            process.terminate()
            process.communicate(timeout=_ENDS_WITHIN_S)
        finally:
            process.kill()


def _until_it_waits(process: "subprocess.Popen[str]") -> dict[str, str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if "Ctrl-C stops everything" in line:
            words = (one.split() for one in lines)
            return {pair[0]: pair[1] for pair in words if len(pair) == 2}
    pytest.fail("".join(lines) + os.linesep)
