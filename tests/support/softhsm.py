"""A hardware module in software: SoftHSM 2, with a token in a folder of the test's own."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

NOT_HERE = "no SoftHSM, or no python-pkcs11, on this machine"
TOKEN = "watchword"  # noqa: S105 - the label of a token
PIN = "271828"

_CONF = """\
directories.tokendir = {folder}/tokens
objectstore.backend = file
log.level = ERROR
"""


def module() -> Path | None:
    """Return SoftHSM's library, if it is here."""
    places = (Path("/usr/lib/softhsm"), *Path("/usr/lib").glob("*/softhsm"))
    found = [place / "libsofthsm2.so" for place in places]
    return next((path for path in found if path.exists()), None)


def needs_softhsm() -> Path:
    """Return SoftHSM's library, or skip where it, or what talks to it, is missing; CI has both."""
    found = module()
    if found is None or shutil.which("softhsm2-util") is None or find_spec("pkcs11") is None:
        pytest.skip(NOT_HERE)
    return found


@dataclass(frozen=True)
class SoftHsm:
    """A token, and how it is reached."""

    folder: Path
    module: Path

    @property
    def conf(self) -> Path:
        """What `SOFTHSM2_CONF` names."""
        return self.folder / "softhsm2.conf"

    @property
    def pin_file(self) -> Path:
        """The file with the PIN."""
        return self.folder / "pin"

    @property
    def settings(self) -> str:
        """The lines of `[signer]`."""
        return (
            f'pkcs11_module = "{self.module}"\npkcs11_token = "{TOKEN}"\n'
            f'pkcs11_pin_file = "{self.pin_file}"\n'
        )

    def unplug(self) -> None:
        """Take the token away."""
        (self.folder / "tokens").rename(self.folder / "away")

    def plug_in(self) -> None:
        """Bring it back."""
        (self.folder / "away").rename(self.folder / "tokens")


def made(folder: Path) -> SoftHsm:
    """Make a token in a new folder."""
    library = needs_softhsm()
    (folder / "tokens").mkdir(parents=True)
    (folder / "softhsm2.conf").write_text(_CONF.format(folder=folder))
    (folder / "pin").touch(mode=0o600)
    (folder / "pin").write_text(f"{PIN}\n")
    subprocess.run(
        [str(shutil.which("softhsm2-util")), "--init-token", "--free", "--label", TOKEN, "--pin", PIN, "--so-pin", "3141592"],
        check=True,
        capture_output=True,
        env={**os.environ, "SOFTHSM2_CONF": str(folder / "softhsm2.conf")},
    )  # fmt: skip
    return SoftHsm(folder, library)
