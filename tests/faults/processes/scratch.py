"""Where the servers of a round have their data: outside of the checkout, and gone afterwards."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_PREFIX = "watchword-faults-"


def scratch_folder() -> Path:
    """Return a new folder; those of runs that were killed outright are removed.

    It is open to the user that PostgreSQL runs as, and its name is short, for the signer's socket.
    """
    base = Path(tempfile.gettempdir())
    for left in base.glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            remove(left)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
    folder.chmod(0o711)
    return folder


def remove(folder: Path) -> None:
    """Delete a folder, and unmount the small disk in it."""
    disk = folder / "wal"
    if disk.is_mount():
        subprocess.run(["/bin/umount", "--lazy", str(disk)], check=False)
    shutil.rmtree(folder, ignore_errors=True)
