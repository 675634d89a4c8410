"""The agent starts light: it runs on machines that have no server's libraries."""

import subprocess
import sys

import pytest

SERVER_ONLY = (
    "aiokafka",
    "asn1crypto",
    "asyncpg",
    "faust",
    "mode",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "watchword.handlers.attestors.cloud_iid.anchors",
    "watchword.handlers.join",
    "watchword.handlers.store",
)

ELSEWHERE = ("aiokafka", "faust", "httpx", "starlette", "uvicorn")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["agent", "status", "--state", "/nonexistent"], id="a machine's agent"),
        pytest.param(
            ["site", "assert", "--key-file", "/nonexistent", "--site", "s", "--csr-sha256", "00"],
            id="a site's agent",
        ),
    ],
)
def test_the_agents_commands_import_no_server_part(arguments: list[str]) -> None:
    """The `agent` extra installs none of it, and 10,000 machines pay for each import."""
    assert imported_by(arguments, SERVER_ONLY) == "[]"


def test_an_operators_command_at_the_database_imports_no_client_of_anything_else() -> None:
    """Scripts run such commands by the hundred, and each import is paid for at every start."""
    arguments = ["nodes", "list", "--config", "/nonexistent"]

    assert imported_by(arguments, ELSEWHERE) == "[]"


def imported_by(arguments: list[str], names: tuple[str, ...]) -> str:
    """Return which of the modules a command has imported at its end, as a list is printed."""
    script = (
        "import sys\n"
        "from watchword.streams.cli.main import run\n"
        f"run({arguments!r})\n"
        f"print([name for name in {names!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr.splitlines()[-1]
