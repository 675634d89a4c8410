"""Who may reach which file."""

from pathlib import Path

from watchword.streams.dev.accounts import ServerAccount, can_reach

_STRANGER = ServerAccount(uid=64_000, gid=64_000)


def test_a_folder_that_is_closed_above_is_out_of_reach(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    inside = closed / "open"
    inside.mkdir(parents=True)
    closed.chmod(0o700)
    inside.chmod(0o755)
    assert not can_reach(inside, _STRANGER)


def test_ourselves_need_no_permission_of_others(tmp_path: Path) -> None:
    assert can_reach(tmp_path, None)


def test_the_root_is_in_reach_of_everybody() -> None:
    assert can_reach(Path("/"), _STRANGER)
