"""PostgreSQL as the deployment has it: durable, with a synchronous standby that can be promoted.

Processes sign in as the owner of their database, not as a superuser, and know both servers; the
driver takes whichever takes writes.
"""

import asyncio
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg

from tests.support.postgres import template_cluster
from watchword.streams.dev import postgres_files
from watchword.streams.dev.accounts import ServerAccount, server_account
from watchword.streams.dev.free_ports import LOOPBACK, free_port
from watchword.streams.dev.postgres import EmbeddedPostgres

DATABASE = ROLE = "watchword"
_STANDBY = "standby"
_SMALL_MIB, _WAL_MIB = 64, 192
"""The disk while it is the fault, and otherwise: room for what a slow checkpoint and a standby that lags leave
behind, for only the fault is to fill it."""
_STREAMING_S = 20.0
_PROMOTION_S = 20.0

_SETTINGS = {
    "max_connections": "60",
    "wal_level": "replica",
    "hot_standby": "on",
    # The log of transactions lies on a small disk, which a fault fills.
    "min_wal_size": "32MB",
    "max_wal_size": "32MB",
    "shared_buffers": "64MB",
    "wal_retrieve_retry_interval": "500ms",
    "log_checkpoints": "off",
}


class SmallDisk:
    """A small file system in memory for the log of transactions; only root can mount one."""

    def __init__(self, folder: Path, account: ServerAccount | None) -> None:
        """Mount it."""
        self.folder = folder
        folder.mkdir(mode=0o755, exist_ok=True)
        options = f"size={_WAL_MIB}m,mode=0700"
        if account is not None:
            options += f",uid={account.uid},gid={account.gid}"
        subprocess.run(
            ["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True
        )

    @property
    def ballast(self) -> Path:
        """The file that takes all room."""
        return self.folder / "ballast"

    def shrink(self) -> bool:
        """Make it the small disk that the fault fills; False while more than that lies on it."""
        return self._resize(_SMALL_MIB)

    def fill(self) -> None:
        """Leave not one block free."""
        with self.ballast.open("wb") as file:
            try:
                while True:
                    file.write(bytes(64 * 1024))
                    file.flush()
            except OSError:
                return

    def free(self) -> None:
        """Give the room back."""
        self.ballast.unlink(missing_ok=True)
        self._resize(_WAL_MIB)

    def remove(self) -> None:
        """Unmount it."""
        subprocess.run(["/bin/umount", "--lazy", str(self.folder)], check=False)

    def _resize(self, mib: int) -> bool:
        command = ["/bin/mount", "-o", f"remount,size={mib}m", str(self.folder)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    @staticmethod
    def refusal(folder: Path) -> str | None:
        """Return why none can be had here, or None."""
        if os.geteuid() != 0:
            return "only root can mount a file system"
        try:
            SmallDisk(folder, None).remove()
        except (OSError, subprocess.CalledProcessError):
            return "mounting a file system is not allowed here"
        return None


class Postgres:
    """The server that takes writes, perhaps its standby, and how to get at them."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """Start nothing yet; `settings` come before those that there are."""
        self._folder = folder
        self._settings = {**_SETTINGS, **(settings or {})}
        self._account = server_account()
        self._ports = (free_port(), free_port())
        self._password = secrets.token_urlsafe(24)
        self._generation = 0
        self.primary = EmbeddedPostgres(
            folder / "postgres-0",
            extra_settings=self._settings,
            port=self._ports[0],
            template=template_cluster(),
        )
        self.standby: EmbeddedPostgres | None = None
        self.disk: SmallDisk | None = None
        """The disk of the primary's log, if it has one of its own."""
        self.no_disk: str | None = "no small disk was asked for"

    @property
    def password(self) -> str:
        """The secret of the deployment's role."""
        return self._password

    @property
    def dsn(self) -> str:
        """The address that processes are given: both servers, and the password."""
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in self._ports)
        return (
            f"postgresql://{ROLE}:{self._password}@{hosts}/{DATABASE}"
            "?target_session_attrs=read-write"
        )

    @property
    def superuser_dsn(self) -> str:
        """The superuser's address of the deployment's database, on the primary."""
        return self.primary.dsn(DATABASE)

    @property
    def logs(self) -> list[Path]:
        """What the servers say."""
        return sorted(self._folder.glob("postgres-*/server.log"))

    async def start(self, *, small_disk: bool = False) -> None:
        """Start the primary, and make role and database."""
        await self.primary.start()
        if small_disk:
            self.no_disk = SmallDisk.refusal(self._folder / "try")
            if self.no_disk is None:
                await self._move_log()
        await self.run(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{self._password}'", database="postgres")
        await self.run(f"CREATE DATABASE {DATABASE} OWNER {ROLE}", database="postgres")

    async def connect(self, database: str = DATABASE) -> Any:  # noqa: ANN401 - asyncpg's own type is generic
        """Return a superuser's connection to the primary."""
        return await asyncpg.connect(self.primary.dsn(database), timeout=10)

    async def run(self, statement: str, *arguments: object, database: str = DATABASE) -> list[Any]:
        """Run a statement as the superuser, and return its rows."""
        connection = await self.connect(database)
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()

    async def add_standby(self) -> None:
        """Copy the primary, and have commits wait for the copy from now on."""
        self._generation += 1
        port = next(port for port in self._ports if port != self.primary.port)
        folder = self._folder / f"postgres-{self._generation}"
        standby = EmbeddedPostgres(folder, extra_settings=self._settings, port=port)
        folder.mkdir(mode=0o711)
        shutil.copy(self.primary.data_dir / "superuser", folder / "superuser")
        await asyncio.to_thread(self._copy_primary, folder)
        await standby.start()
        self.standby = standby
        async with asyncio.timeout(_STREAMING_S):
            while not await self.is_streaming():
                await asyncio.sleep(0.1)
        await self._await_standby(_STANDBY)

    async def is_streaming(self) -> bool:
        """Tell whether the standby gets what is committed."""
        rows = await self.run("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
        return bool(rows)

    async def promote(self) -> None:
        """Kill the primary, and let the standby take its place."""
        standby = self.standby
        if standby is None:
            message = "there is no standby"
            raise RuntimeError(message)
        old, self.standby = self.primary, None
        await old.kill()
        self.primary = standby
        disk, self.disk, self.no_disk = self.disk, None, "the promoted server has none"
        async with asyncio.timeout(_PROMOTION_S):
            await self.run("SELECT pg_promote(wait => true)", database="postgres")
        await old.remove()
        if disk is not None:
            disk.remove()

    async def remove(self) -> None:
        """Kill the servers and delete what they have."""
        for server in (self.standby, self.primary):
            if server is not None:
                await server.remove()
        if self.disk is not None:
            self.disk.remove()

    async def _await_standby(self, name: str) -> None:
        await self.run(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        await self.run("SELECT pg_reload_conf()")

    async def _move_log(self) -> None:
        """Put the log of transactions on a small disk, and a link in its place."""
        await self.primary.stop()
        self.disk = await asyncio.to_thread(SmallDisk, self._folder / "wal", self._account)
        cluster = self._cluster_of(self.primary)
        moved = self.disk.folder / "pg_wal"
        await asyncio.to_thread(self._move, cluster / "pg_wal", moved)
        await self.primary.start()

    def _move(self, source: Path, target: Path) -> None:
        shutil.copytree(source, target)
        shutil.rmtree(source)
        source.symlink_to(target)
        if self._account is not None:
            for path in (target, *target.rglob("*")):
                os.chown(path, self._account.uid, self._account.gid)
        target.chmod(0o700)

    def _copy_primary(self, folder: Path) -> None:
        """Make `folder/cluster` a standby of the primary."""
        cluster = folder / "cluster"
        cluster.mkdir(mode=0o700)
        account = self._account
        if account is not None:
            os.chown(cluster, account.uid, account.gid)
        password = (self.primary.data_dir / "superuser").read_text()
        source = f"host={LOOPBACK} port={self.primary.port} user=postgres"
        subprocess.run(
            [
                str(postgres_files.binaries(account) / "pg_basebackup"),
                f"--pgdata={cluster}",
                f"--dbname={source}",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--no-sync",
                # The primary keeps what its standby has not got: a standby that can never catch up
                # stops every commit for good.
                "--create-slot",
                f"--slot={_STANDBY}",
            ],
            check=True,
            capture_output=True,
            env={"PATH": os.defpath, "PGPASSWORD": password, "LC_ALL": "C"},
            cwd=cluster,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )
        with (cluster / "postgresql.auto.conf").open("a") as conf:
            # A password from a file would have to be the server user's own.
            conf.write(
                f"primary_conninfo = '{source} password={password} application_name={_STANDBY}'\n"
                f"primary_slot_name = '{_STANDBY}'\n"
                "synchronous_standby_names = ''\n"
            )
        (cluster / "standby.signal").touch()
        if account is not None:
            os.chown(cluster / "standby.signal", account.uid, account.gid)

    @staticmethod
    def _cluster_of(server: EmbeddedPostgres) -> Path:
        return (server.data_dir / "cluster").resolve()
