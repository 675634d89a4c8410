"""Exit codes: scripts decide by them."""

from importlib import import_module

import pytest

from watchword.handlers import errors
from watchword.streams.agent.errors import GaveUp, JoinRefused, StateBusy, TransportUnavailable
from watchword.streams.cli import exits
from watchword.streams.cli.main import run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadArgument("x"), 2),
        (errors.ConfigRefused(["x"]), 2),
        (errors.NotFound("x"), 3),
        (errors.Conflict("x"), 4),
        (errors.Denied("x"), 5),
        (errors.StoreUnavailable("x"), 69),
        (errors.SignerUnavailable("x"), 69),
        (TimeoutError(), 75),
        (KeyboardInterrupt(), 130),
        (errors.StoreRejected("x"), 1),
        (OSError("x"), 1),
        (JoinRefused(), 5),
        (GaveUp(), 75),
        (StateBusy(), 4),
        (TransportUnavailable("x"), 69),
    ],
)
def test_every_error_has_the_code_that_the_reference_names(error: BaseException, code: int) -> None:
    """A wrong code makes a script try for ever what can never work."""
    assert exits.exit_code(error) == code


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["tokens", "create"],
        ["tokens", "create", "acme", "gpu", "--uses", "many"],
        ["nodes", "list", "--output", "xml"],
        ["agent", "join", "--state", "/nonexistent", "--gateway", "http://x", "--kafka"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    """The same code whether the parser or the command finds it."""
    assert run(arguments) == 2


def test_a_broken_configuration_is_told_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator mends what is listed, all of it."""
    monkeypatch.setenv("WATCHWORD_RELAY__IDLE_MS", "soon")
    monkeypatch.setenv("WATCHWORD_NONSENSE__X", "1")

    assert run(["config", "show"]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "relay.idle_ms (variable WATCHWORD_RELAY__IDLE_MS)" in captured.err
    assert "nonsense (variable WATCHWORD_NONSENSE__X): no such setting" in captured.err


def test_what_tasks_could_not_do_together_is_told_as_if_each_had_run_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first thing that a newcomer may see is a server that does not start: a sentence, and no trace of ours."""
    away = [errors.StoreUnavailable("Kafka is away"), errors.BadArgument("and a port is taken")]

    def raising(error: Exception) -> None:
        def command(*_: object, **__: object) -> None:
            raise error

        # By its name: the package gives the function of that name.
        main = import_module("watchword.streams.cli.main")
        monkeypatch.setattr(main, "make_app", lambda: command)

    raising(ExceptionGroup("tasks", [ExceptionGroup("inner", away)]))
    assert run([]) == 69
    told = capsys.readouterr().err
    assert told.splitlines() == ["watchword: Kafka is away", "watchword: and a port is taken"]

    raising(ExceptionGroup("tasks", [away[0], ValueError("a bug")]))
    with pytest.raises(ExceptionGroup):
        run([])
