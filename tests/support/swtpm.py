"""A software TPM: one that `swtpm` emulates, with endorsement keys that its own CA has certified."""

import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from watchword.streams.simulator.software_tpm import switched_on, two_ports

NEEDED = ("swtpm", "swtpm_setup", "swtpm_localca")
NOT_HERE = "no software TPM, or no tpm2-pytss, on this machine"
_START_S = 30.0


def needs_swtpm() -> None:
    """Skip where there is no software TPM, or nothing that could talk to it; CI has both."""
    if any(shutil.which(name) is None for name in NEEDED) or find_spec("tpm2_pytss") is None:
        pytest.skip(NOT_HERE)


@dataclass(frozen=True)
class SoftwareTpm:
    """A TPM's state, and how it is reached while it runs."""

    folder: Path
    ca: Path
    tcti: str
    port: int

    @property
    def root(self) -> Path:
        """PEM of the CA at the top."""
        return self.ca / "swtpm-localca-rootca-cert.pem"

    @property
    def issuer(self) -> Path:
        """PEM of the CA that has certified the endorsement keys."""
        return self.ca / "issuercert.pem"

    @contextmanager
    def running(self) -> Generator[None]:
        """Have it switched on: PCRs begin anew, keys are the same as before."""
        command = switched_on(self.folder / "state", self.port)
        log = self.folder / "swtpm.log"
        with log.open("ab") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
            try:
                _until_listening(self.port, process, log)
                yield
            finally:
                process.terminate()
                process.wait(30)


def made(folder: Path, *, ca: Path | None = None) -> SoftwareTpm:
    """Make a TPM in an empty folder: EKs of RSA-2048 and P-384, certificates in its NV indexes.

    Its CA is made too, unless that of another TPM is given.
    """
    (folder / "state").mkdir()
    ca = ca or folder / "ca"
    ca.mkdir(exist_ok=True)
    (folder / "localca.conf").write_text(
        f"statedir = {ca}\nsigningkey = {ca}/signkey.pem\nissuercert = {ca}/issuercert.pem\n"
        f"certserial = {ca}/certserial\n"
    )
    (folder / "localca.options").write_text(
        "--platform-manufacturer Tests\n--platform-version 1.0\n--platform-model QEMU-like\n"
    )
    (folder / "setup.conf").write_text(
        f"create_certs_tool={shutil.which('swtpm_localca')}\n"
        f"create_certs_tool_config={folder}/localca.conf\n"
        f"create_certs_tool_options={folder}/localca.options\nactive_pcr_banks = sha256\n"
    )
    subprocess.run(
        [
            shutil.which("swtpm_setup") or "", "--tpm2", "--tpmstate", str(folder / "state"),
            "--config", str(folder / "setup.conf"), "--create-ek-cert", "--create-platform-cert",
            "--lock-nvram", "--overwrite", "--pcr-banks", "sha1,sha256,sha384",
        ],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    port = two_ports()
    return SoftwareTpm(folder, ca, f"swtpm:host=127.0.0.1,port={port}", port)


def _until_listening(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port + 1), 1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "the software TPM does not listen"
            time.sleep(0.05)
        else:
            return
