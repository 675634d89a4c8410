"""The machines that are kept from run to run."""

from pathlib import Path

from watchword.schemas.canonical import length_prefixed
from watchword.streams.simulator.fleet import read_parts


def test_what_a_killed_run_left_half_written_is_cut_off(tmp_path: Path) -> None:
    """Otherwise every later machine would be read askew."""
    file = tmp_path / "machines"
    whole = length_prefixed(b"key", b"csr")
    for rest in (b"", length_prefixed(b"lonely key"), length_prefixed(b"key", b"csr")[:-1], b"\0"):
        file.write_bytes(whole + rest)
        assert read_parts(file) == [b"key", b"csr"]
        assert file.read_bytes() == whole
