"""Types of tests that run commands as processes of their own."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

Done = subprocess.CompletedProcess[str]

Command = Callable[..., Done]
"""Runs `watchword` with these arguments; `code=` is the exit status that it must end with."""


def result(done: Done) -> dict[str, Any]:
    """Return what a command wrote as JSON."""
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schemaVersion"] == 1
    return found
