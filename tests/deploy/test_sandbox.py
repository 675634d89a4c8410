"""What the image is run with: every role, without privileges and on a read-only root, writing where it is said to and nowhere else.

There is no container engine here. `bwrap` makes the same: a root in which there is Python, the wheel and its libraries, all
read-only, and a user that owns nothing of it. Which folders are writable is read from deploy/README.md.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.folders import server_folder
from tests.support.installed import Installed
from tests.support.sites import Site, forget_keys, is_ready, joined
from tests.support.writable import declared
from watchword.streams.dev.free_ports import free_ports
from watchword.streams.dev.kafka import EmbeddedKafka

UID = 65534
"""Nobody: not even the image's own user."""

READY_S = 90.0
KEYS, RUN, ETC = Path("/var/lib/watchword/keys"), Path("/run/watchword"), Path("/etc/watchword")
VOLUMES = {KEYS: "keys", RUN: "run", ETC: "etc"}
"""What a container is given, and the folder that stands for it."""

PREPARE = ("keys init", "db migrate", "topics apply", "trust publish")
ROLES = ("signer", "worker", "relay", "keeper", "gateway", "console")

_SETTINGS = {
    "WATCHWORD_DEPLOYMENT__TRUST_DOMAIN": "sandbox.example",
    "WATCHWORD_TOPICS__REPLICATION_FACTOR": "1",
    "WATCHWORD_TOPICS__MIN_INSYNC_REPLICAS": "1",
    "WATCHWORD_WORKER__NAME": "sandbox",
    "WATCHWORD_KEYS__DIRECTORY": str(KEYS),
    "WATCHWORD_SIGNER__SOCKET": str(RUN / "signer.sock"),
    "WATCHWORD_DATABASE__URL_FILE": str(ETC / "database.url"),
}


def _works() -> bool:
    tools = shutil.which("bwrap"), shutil.which("setpriv")
    if os.geteuid() != 0 or None in tools:
        return False
    probe = [*_ROOT, "--", *_NOBODY, "/bin/true"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


_ROOT = [
    "bwrap", "--die-with-parent", "--new-session", "--unshare-ipc", "--unshare-uts", "--clearenv",
    "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP",
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
    "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev",
]  # fmt: skip
_NOBODY = [
    "setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs",
    "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all",
]  # fmt: skip

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not _works(), reason="no bwrap here that may be used"),
]


@dataclass(frozen=True)
class Sandbox:
    """Our wheel in a root of its own, and what stands for the volumes of a container."""

    folder: Path
    python: Path
    environment: dict[str, str]
    ports: dict[str, int]

    def command(self, line: str, writable: list[Path]) -> list[str]:
        """Return what runs one of our commands with these folders writable."""
        ours = (sys.base_prefix, sysconfig.get_path("purelib"), str(self.python.parents[1]))
        mounts = [("--ro-bind", path, path) for path in ours] + [
            ("--bind" if path in writable else "--ro-bind", str(self.folder / name), str(path))
            for path, name in VOLUMES.items()
        ]
        # Folders on the way are everybody's to walk through; bwrap would make some of them root's alone.
        above = {str(up) for _, _, path in mounts for up in Path(path).parents} - {"/", "/usr"}
        binds = [part for up in sorted(above) for part in ("--perms", "0755", "--dir", up)]
        binds += [part for mount in mounts for part in mount]
        variables = [part for pair in self.environment.items() for part in ("--setenv", *pair)]
        command = [str(self.python), "-m", "watchword.streams.cli", *line.split()]
        return [*_ROOT, *binds, *variables, "--remount-ro", "/", "--", *_NOBODY, *command]

    def run(self, line: str, writable: list[Path]) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end."""
        return subprocess.run(
            self.command(line, writable), check=False, capture_output=True, text=True, timeout=100
        )

    @contextmanager
    def process(self, role: str) -> Generator[None]:
        """Have one role, ready; it ends in good order."""
        log = self.folder / f"{role}.log"
        info, told = os.pipe()
        with log.open("wb") as file:
            bwrap, *rest = self.command(role, declared()[role])
            process = subprocess.Popen(
                [bwrap, "--info-fd", str(told), *rest], stdout=file, stderr=file, pass_fds=[told]
            )
        os.close(told)
        try:
            with os.fdopen(info) as said:
                child = json.load(said)["child-pid"]
            deadline = time.monotonic() + READY_S
            while not is_ready(self.ports[role]):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            status = Path(f"/proc/{child}/status").read_text()
            assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}\n" in status
            assert "CapEff:\t0000000000000000\n" in status
            assert "NoNewPrivs:\t1\n" in status
            yield
            os.kill(child, signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def sandbox(
    installed: Installed, empty_database: str, kafka_broker: EmbeddedKafka
) -> Generator[Sandbox]:
    """Give a sandbox with everything that a container is given, owned by the user who runs it."""
    forget_keys(kafka_broker.bootstrap_servers)
    names = (*ROLES, "http", "pages")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    variables = _SETTINGS | {
        "KAFKA_BOOTSTRAP_SERVERS": kafka_broker.bootstrap_servers,
        "WATCHWORD_GATEWAY__PORT": str(ports["http"]),
        "WATCHWORD_CONSOLE__PORT": str(ports["pages"]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    variables |= {f"WATCHWORD_{role.upper()}__HEALTH_PORT": str(ports[role]) for role in ROLES}
    with server_folder("sandbox") as folder:
        for name in VOLUMES.values():
            (folder / name).mkdir(mode=0o700)
        (folder / "etc" / "database.url").touch(mode=0o600)
        (folder / "etc" / "database.url").write_text(empty_database)
        for path in (
            *(folder / name for name in VOLUMES.values()),
            folder / "etc" / "database.url",
        ):
            os.chown(path, UID, UID)
        yield Sandbox(folder, installed.python, variables, ports)


def test_every_role_and_every_step_before_it_says_what_it_writes_to() -> None:
    """A role that is not in the table would be run with nothing, or with everything."""
    assert set(declared()) == {*PREPARE, *ROLES}
    assert set().union(*declared().values()) < set(VOLUMES)


def test_a_machine_joins_a_deployment_that_may_write_nowhere_else(sandbox: Sandbox) -> None:
    """Who breaks into a role finds nothing to change, and no privilege to do it with."""
    refused = sandbox.run("keys init", writable=[])
    assert "Read-only file system" in refused.stderr
    assert not list((sandbox.folder / "keys").iterdir())

    for line in PREPARE:
        done = sandbox.run(line, declared()[line])
        assert done.returncode == 0, f"{line}: {done.stderr}"

    operator = Site(sandbox.folder, {"gateway": sandbox.ports["http"]})
    (sandbox.folder / "config.toml").write_text(
        f'[database]\nurl_file = "{sandbox.folder}/etc/database.url"\n'
        f'[keys]\ndirectory = "{sandbox.folder}/keys"\n'
    )
    operator.run("tenants", "create", "acme")
    operator.run("pools", "create", "acme", "web")
    token = sandbox.folder / "token"
    token.touch(mode=0o600)
    token.write_text(operator.asked("tokens", "create", "acme", "web")["token"])
    with ExitStack() as stack:
        for role in ROLES:
            stack.enter_context(sandbox.process(role))
        with operator.joining("machine", "--token-file", str(token)) as machine:
            assert joined(machine)
        assert not [path for path in sandbox.folder.glob("etc/*") if path.name != "database.url"]
    assert not list((sandbox.folder / "run").iterdir())
