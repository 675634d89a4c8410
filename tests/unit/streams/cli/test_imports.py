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
    script = (
        "import sys\n"
        "from watchword.streams.cli.main import run\n"
        f"run({arguments!r})\n"
        f"print([name for name in {SERVER_ONLY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stderr.splitlines()[-1] == "[]"
