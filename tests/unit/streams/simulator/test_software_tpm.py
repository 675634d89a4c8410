"""Software TPMs are not everywhere."""

import pytest

from watchword.streams.simulator import software_tpm


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mix that is quietly another one measures something else."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert software_tpm.missing() == "the program swtpm"
