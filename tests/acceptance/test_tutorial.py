"""The tutorial for authors, run as it is written, in an environment with our wheel and nothing of the checkout."""

import re
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.folders import ROOT, server_folder
from tests.support.installed import Installed, clean_environment

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "guides" / "write-an-attestor.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def home() -> Generator[Path]:
    """Give a folder that servers of other users may look into."""
    with server_folder("tutorial") as folder:
        yield folder


def test_commands_of_the_tutorial_lead_to_a_joined_machine(
    installed: Installed, home: Path
) -> None:
    """Who meets a stumble in the first hour does not come back for the second."""
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(blocks) == 4
    script = "set -eu\n" + "\n".join(f"echo '--- {n}'\n{block}" for n, block in enumerate(blocks))
    environment = clean_environment()
    environment["PATH"] = f"{installed.commands}:{environment['PATH']}"
    environment["HOME"] = str(home)
    done = subprocess.run(
        ["/bin/bash", "-c", script], cwd=home, env=environment, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    tested, listed, checked, joined = re.split(r"^--- \d$", done.stdout, flags=re.MULTILINE)[1:]
    assert re.search(r"\b\d+ passed", tested), said
    assert "failed" not in tested
    assert re.search(r"^acme-hello +available", listed, re.MULTILINE), listed
    assert "PROBLEM" in checked
    assert "a worker would start" in done.stderr
    assert re.search(r"\bacme-hello\b", joined), said
    assert re.search(r"^state +joined", joined, re.MULTILINE), said
