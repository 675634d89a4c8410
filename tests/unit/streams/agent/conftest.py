"""A machine for an agent, with the service's keys pinned."""

from pathlib import Path

import pytest

from tests.support.agents import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has not joined yet; its clocks go on only when somebody waits."""
    return Machine(tmp_path / "state")
