"""Files that are there whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from watchword.streams.agent import atomic_files


class Recorder:
    """Writes down what is asked of the disk, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Listen in on the calls."""
        self.calls: list[tuple[str, str]] = []
        for name in ("fsync", "rename", "replace", "symlink", "mkdir"):
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*arguments: object, **options: object) -> object:
            first = arguments[0]
            if name == "replace":
                first = arguments[1]
            elif isinstance(first, int):
                first = Path(f"/proc/self/fd/{first}").readlink()
            self.calls.append((name, str(first)))
            return real(*arguments, **options)

        return wrapper


def test_content_is_flushed_before_it_gets_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut must not leave a name for content that never reached the disk."""
    recorder = Recorder(monkeypatch)
    atomic_files.write_file(tmp_path / "file", b"content")

    (flushed, new), (named, name), (last, folder) = recorder.calls
    assert (flushed, named, last) == ("fsync", "replace", "fsync")
    assert Path(new).name.startswith(".new-")
    assert (name, folder) == (str(tmp_path / "file"), str(tmp_path))


def test_folder_gets_its_name_after_every_file_in_it_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key must not be lost behind a certificate that was kept."""
    recorder = Recorder(monkeypatch)
    atomic_files.write_folder(tmp_path / "set", {"a": b"1", "b": b"2"})
    atomic_files.point(tmp_path / "link", "set")

    names = [(name, Path(path).name.split("-")[0]) for name, path in recorder.calls]
    assert names == [
        ("mkdir", ".new"),
        ("fsync", "a"),
        ("fsync", "b"),
        ("fsync", ".new"),
        ("rename", ".new"),
        ("fsync", tmp_path.name.split("-")[0]),
        ("symlink", "set"),
        ("replace", "link"),
        ("fsync", tmp_path.name.split("-")[0]),
    ]


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_permissions_are_not_left_to_the_umask(tmp_path: Path, umask: int) -> None:
    """A unit file with another umask must not open a key, nor lock the agent out."""
    before = os.umask(umask)
    try:
        atomic_files.make_folder(tmp_path / "top")
        atomic_files.write_file(tmp_path / "top" / "file", b"")
        atomic_files.write_folder(tmp_path / "top" / "set", {"a": b"1"})
    finally:
        os.umask(before)

    assert (tmp_path / "top").stat().st_mode & 0o7777 == 0o700
    assert (tmp_path / "top" / "set").stat().st_mode & 0o7777 == 0o700
    assert (tmp_path / "top" / "file").stat().st_mode & 0o7777 == 0o600
    assert (tmp_path / "top" / "set" / "a").stat().st_mode & 0o7777 == 0o600


def test_loose_folder_is_tightened(tmp_path: Path) -> None:
    """A state directory that a unit file made is 0755."""
    (tmp_path / "state").mkdir(mode=0o755)
    atomic_files.make_folder(tmp_path / "state")

    assert (tmp_path / "state").stat().st_mode & 0o7777 == 0o700


def test_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk costs the new file, not the old one."""
    atomic_files.write_file(tmp_path / "file", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_files.write_file(tmp_path / "file", b"new")
    with pytest.raises(OSError, match="No space"):
        atomic_files.write_folder(tmp_path / "set", {"a": b"1"})

    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """write(2) may take less than it was given."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:3])))
    atomic_files.write_file(tmp_path / "file", b"0123456789")

    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_folder_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    """A set that somebody may be reading never changes."""
    atomic_files.write_folder(tmp_path / "set", {"a": b"1"})
    with pytest.raises(OSError, match="not empty"):
        atomic_files.write_folder(tmp_path / "set", {"b": b"2"})

    assert [path.name for path in (tmp_path / "set").iterdir()] == ["a"]


def test_what_a_crash_left_is_swept_away(tmp_path: Path) -> None:
    """Keys that never came into use should not lie about for years."""
    (tmp_path / ".new-1").write_bytes(b"half")
    (tmp_path / ".new-2").mkdir()
    (tmp_path / ".new-2" / "key.pem").write_bytes(b"half")
    (tmp_path / ".new-3").symlink_to("nowhere")
    (tmp_path / "kept").write_bytes(b"")
    atomic_files.sweep(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    """A crash may have come after the removal, and it is done again."""
    atomic_files.write_folder(tmp_path / "set", {"a": b"1"})
    atomic_files.remove(tmp_path / "set")
    atomic_files.remove(tmp_path / "set")

    assert list(tmp_path.iterdir()) == []
