"""The folder of a PostgreSQL cluster: made, copied from a template, and freed of a stale lock."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from watchword.streams.dev.accounts import ServerAccount
from watchword.streams.dev.errors import ServerFailed
from watchword.streams.dev.postgres_files import copy_whole
from watchword.streams.dev.server_process import is_alive

SUPERUSER = "postgres"
"""The name of the superuser of every embedded cluster."""

ENVIRONMENT: Mapping[str, str] = MappingProxyType({"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"})
"""All that the server sees of the environment: what our user has set is not its business."""


@dataclass(frozen=True, slots=True)
class ClusterMaker:
    """How to make a cluster."""

    bin_folder: Path
    account: ServerAccount | None
    sync: bool
    """Whether the files reach the disk before the cluster counts as made."""
    template: Path | None
    """Where an empty cluster is kept, or will be."""

    def make(self, cluster: Path, secret: Path) -> None:
        """Make a cluster whose superuser's password lies in the file `secret`, mode 0600.

        The cluster appears whole or not at all. 2.6 s, and 0.2 s from a template.

        Raises:
            ServerFailed: `initdb` failed; its output is quoted.
        """
        secret.touch(mode=0o600)
        partial = cluster.with_name(f"{cluster.name}-partial")
        shutil.rmtree(partial, ignore_errors=True)  # what an interrupted start left
        partial.mkdir(mode=0o700)
        self._give(partial)
        if self.template is not None and self.template.is_dir():
            secret.write_text((self.template / "superuser").read_text())
            shutil.copytree(self.template / "cluster", partial, dirs_exist_ok=True)
            for folder, _, files in os.walk(partial):
                for path in (Path(folder), *(Path(folder, file) for file in files)):
                    self._give(path)
        else:
            secret.write_text(secrets.token_urlsafe(24))
            self._initdb(partial, secret)
            if self.template is not None:
                _keep(partial, secret, self.template)
        partial.rename(cluster)

    def _initdb(self, partial: Path, secret: Path) -> None:
        # The server's user cannot read our file, and a secret has no place in arguments.
        password_file = partial.with_name(f"{partial.name}-password")
        password_file.unlink(missing_ok=True)
        try:
            password_file.touch(mode=0o600)
            password_file.write_text(secret.read_text())
            self._give(password_file)
            done = subprocess.run(  # noqa: S603 - no shell, and the command is ours
                [
                    str(self.bin_folder / "initdb"),
                    f"--pgdata={partial}",
                    f"--username={SUPERUSER}",
                    f"--pwfile={password_file}",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    # The same sort order and case rules on every machine.
                    "--locale=C",
                    "--locale-provider=builtin",
                    "--builtin-locale=C.UTF-8",
                    *([] if self.sync else ["--no-sync"]),
                ],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=partial,
                env=dict(ENVIRONMENT),
                user=None if self.account is None else self.account.uid,
                group=None if self.account is None else self.account.gid,
                extra_groups=None if self.account is None else [],
            )
        finally:
            password_file.unlink(missing_ok=True)
        if done.returncode != 0:
            message = f"initdb failed with status {done.returncode}:\n{done.stdout}"
            raise ServerFailed(message)

    def _give(self, path: Path) -> None:
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid)


def _keep(cluster: Path, secret: Path, template: Path) -> None:
    """Keep a copy of an empty cluster with its password."""
    template.parent.mkdir(parents=True, exist_ok=True)
    draft = template.with_name(f"{template.name}-draft-{secrets.token_hex(4)}")
    draft.mkdir(mode=0o700)
    try:
        shutil.copytree(cluster, draft / "cluster")
        (draft / "superuser").touch(mode=0o600)
        (draft / "superuser").write_text(secret.read_text())
        copy_whole(draft, template)
    finally:
        shutil.rmtree(draft)


def forget_stale_lock(cluster: Path) -> None:
    """Remove the lock file of a server that died, if its process id now belongs to another program.

    PostgreSQL itself removes a lock file whose process is gone, but takes any living process of
    its user for a server.

    Raises:
        ServerFailed: a server runs on this cluster.
    """
    lock = cluster / "postmaster.pid"
    try:
        pid = int(lock.read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return
    if not is_alive(pid):
        return
    if sys.platform == "linux":
        try:
            runs_here = Path(f"/proc/{pid}/cwd").readlink() == cluster.resolve()
        except OSError:
            runs_here = False  # it ended, or is another user's
        if not runs_here:
            lock.unlink()
            return
    message = f"a PostgreSQL server, process {pid}, runs on {cluster} already"
    raise ServerFailed(message)
