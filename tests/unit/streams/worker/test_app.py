"""The faust app."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition

from tests.support.waiting import until
from watchword.handlers.join.records import Incoming
from watchword.streams.worker import app as module
from watchword.streams.worker.app import NoAgent, build_app
from watchword.streams.worker.backlog import Deliveries, Delivery
from watchword.streams.worker.records import WrongVersion
from watchword.streams.worker.services import WorkerService
from watchword.streams.worker.tenures import Tenures


def _delivery() -> Delivery:
    tenure = Tenures().begin(TopicPartition("t", 0), 0)
    return Delivery(Incoming(b"", "t", 0, 0), None, tenure, 0)


async def test_what_is_emitted_reaches_the_agent_in_order() -> None:
    received: list[Delivery] = []
    app = build_app("test", received.extend, capacity=10)
    await app.service.start()
    try:
        sent = [_delivery() for _ in range(100)]
        for at in range(0, 100, 5):
            await app.emit(sent[at : at + 5])
        await until(lambda: len(received) == 100, "all have arrived")
    finally:
        await app.service.stop()
    assert received == sent


async def test_nothing_is_dropped_for_want_of_an_agent() -> None:
    """The channel of faust throws away what nobody subscribes to."""
    with pytest.raises(NoAgent):
        await build_app("test", lambda _: None, capacity=1).emit([_delivery()])


async def test_an_agent_that_raises_ends_the_app() -> None:
    def broken(_: Deliveries) -> None:
        raise LookupError

    app = build_app("test", broken, capacity=1)
    await app.service.start()
    try:
        await app.emit([_delivery()])
        await until(lambda: app.service.crashed, "the app has crashed")
        assert isinstance(app.service.crash_reason, LookupError)
    finally:
        await app.service.stop()


async def test_services_stop_in_the_reverse_order() -> None:
    """The source drains while the agent and the batches are still there."""
    stopped: list[str] = []

    class Part(WorkerService):
        def __init__(self, name: str) -> None:
            """Take a name."""
            super().__init__()
            self.name = name

        async def on_stop(self) -> None:
            stopped.append(self.name)

    app = build_app("test", lambda _: None, capacity=1)
    app.add(Part("answers"), Part("batches"), Part("source"))
    await app.service.start()
    await app.service.stop()
    assert stopped == ["source", "batches", "answers"]


async def test_it_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs on a read-only file system."""
    monkeypatch.chdir(tmp_path)
    app = build_app("test", lambda _: None, capacity=1)
    await app.service.start()
    await app.service.stop()
    assert not _names_in(tmp_path)


def _names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.PINNED, "faust-streaming", "0.15.4")
    with pytest.raises(WrongVersion, match="faust-streaming"):
        build_app("test", lambda _: None, capacity=1)


def test_faust_does_not_see_our_command_line_or_its_own_variables() -> None:
    """It takes `--datadir` and `--loop` wherever they stand, and an unknown loop ends the process."""
    script = (
        "import os, sys\n"
        "import watchword.streams.worker.app\n"
        "assert sys.argv[1:] == ['--datadir', '/x', '--loop', 'nonsense'], sys.argv\n"
        "assert os.environ['F_LOOP'] == 'nonsense'\n"
        "assert 'FAUST_DATADIR' not in os.environ\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, "--datadir", "/x", "--loop", "nonsense"],
        check=True,
        env={**os.environ, "F_LOOP": "nonsense"},
    )
