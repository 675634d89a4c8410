"""A machine of today, and a gateway that answers it as a test says."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.agents import Machine
from tests.support.http_service import ScriptedGateway


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has not joined yet, at the time of now."""
    return Machine(tmp_path / "state", now=datetime.now(UTC))


@pytest.fixture
def gateway(machine: Machine) -> ScriptedGateway:
    """What the machine's service is asked through."""
    return ScriptedGateway(machine.service)
