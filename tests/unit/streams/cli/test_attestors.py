"""`watchword attestors`: what an operator asks before they rely on somebody's package."""

import json
from pathlib import Path

import pytest

from watchword.streams.cli.main import run


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the configuration file that commands read."""
    file = tmp_path / "watchword.toml"
    monkeypatch.setenv("WATCHWORD_CONFIG", str(file))
    monkeypatch.setenv("HOME", str(tmp_path))
    return file


def test_list_is_json_for_programs(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With reasons and their codes, which a security team's rules are made of."""
    config.write_text('[attestors]\nenabled = ["image", "gone"]\n')
    assert run(["attestors", "list", "--output", "json"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)["items"]}
    assert rows["join-token"]["state"] == "enabled"
    assert rows["join-token"]["distribution"] == "watchword"
    assert "WJ0302" in [reason["code"] for reason in rows["join-token"]["reasons"]]
    assert rows["discovery"]["state"] == "available"
    assert "may admit nobody" in rows["image"]["problem"]
    assert (rows["gone"]["state"], rows["gone"]["problem"]) == (
        "skipped",
        "enabled, and not installed",
    )


def test_check_says_what_would_stop_a_worker(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script asks it before a worker is restarted."""
    config.write_text('[attestors]\nenabled = ["image"]\n[attestors.image]\n')
    assert run(["attestors", "check"]) == 0
    assert "would start" in capsys.readouterr().err
    config.write_text('[attestors]\nenabled = ["gone"]\n')
    assert run(["attestors", "check", "--output", "json"]) == 2
    said = capsys.readouterr()
    [problem] = json.loads(said.out)["items"]
    assert problem["problem"].startswith("attestors.enabled: gone is not installed")
    assert "would start" not in said.err


def test_new_writes_into_a_folder(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a name that cannot be an id is a usage error."""
    del config
    assert run(["attestors", "new", "acme-hello", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "acme-hello" / "src" / "acme_hello" / "verifier.py").exists()
    assert "python -m pytest" in capsys.readouterr().err
    assert run(["attestors", "new", "Acme", "--folder", str(tmp_path)]) == 2
    assert run(["attestors", "new", "acme-hello", "--folder", str(tmp_path)]) == 4
