"""`watchword dev`: a whole deployment on this machine, as a person and as CI would run it."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.folders import server_folder

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(400)]

_ENDS_WITHIN_S = 60


@pytest.fixture(scope="module")
def data() -> Generator[Path]:
    """Give one folder to all tests: the second run meets the data of the first."""
    with server_folder("dev") as folder:
        yield folder / "data"


@contextmanager
def dev(data: Path, *options: str) -> Generator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-m", "watchword.streams.cli", "dev", "--data", str(data), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: "subprocess.Popen[str]", end: str) -> list[str]:
    """Return what is printed up to a line; fail if the process ends before."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if end in line:
            return lines
    pytest.fail("\n".join(lines))


def left_behind(data: Path) -> list[str]:
    """Return the command lines of processes that have to do with the folder."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(data).encode() in said:
            found.append(said.decode(errors="replace")[:200])
    return found


def test_the_demonstration_ends_well_and_leaves_nothing_running(data: Path) -> None:
    """The first thing that anybody tries; CI runs it and looks at the exit status."""
    with dev(data, "--demo") as process:
        assert process.stdout is not None
        printed = process.stdout.read()

        assert process.wait(_ENDS_WITHIN_S) == 0, printed
    assert "17 of 25 machines joined" in printed
    assert "BROKEN" not in printed
    assert left_behind(data) == []
    logs = "".join(log.read_text() for log in (data / "logs").iterdir())
    assert "ww1." not in logs
    assert '"level": "critical"' not in logs


def test_one_more_machine_joins_by_the_commands_that_are_printed(data: Path) -> None:
    """What is printed is pasted."""
    with dev(data) as process:
        printed = read_until(process, "Ctrl-C stops everything")
        text = "\n".join(printed).replace("\\\n", "")
        commands = [line.strip() for line in text.splitlines() if "watchword agent" in line]
        assert len(commands) == 2
        for command in commands:
            words = shlex.split(command)[1:]
            subprocess.run(
                [sys.executable, "-m", "watchword.streams.cli", *words],
                check=True,
                capture_output=True,
                timeout=100,
            )
        read_until(process, "node.joined")
        (link,) = [line.split()[1] for line in printed if line.startswith("console ")]
        console, _, secret = link.partition("/sign-in?link=")
        with httpx.Client(base_url=console, trust_env=False) as visitor:
            assert visitor.post("/sign-in", data={"link": secret}).status_code == 303
            assert "nodes in service" in visitor.get("/").text
        process.send_signal(signal.SIGINT)
        read_until(process, "nothing is left running")

        assert process.wait(_ENDS_WITHIN_S) == 0
    assert left_behind(data) == []
    assert secret not in "".join(log.read_text() for log in (data / "logs").iterdir())


def test_a_run_that_is_killed_takes_everything_with_it(data: Path) -> None:
    """A laptop's terminal is closed without a word; the next run must start all the same."""
    with dev(data) as process:
        read_until(process, "Kafka and PostgreSQL are up")
        process.kill()
        process.wait(_ENDS_WITHIN_S)

    with dev(data, "--demo") as process:
        assert process.stdout is not None
        printed = process.stdout.read()

        assert process.wait(_ENDS_WITHIN_S) == 0, printed
    assert left_behind(data) == []
