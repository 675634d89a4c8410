"""The jars of Apache Kafka: fetched once, and compared with their pinned hashes before every start.

`runtime/jgo.toml` names what is wanted and `runtime/jgo.lock.toml` every file with its SHA-256;
both are part of the package. `jgo` fetches, but checks hashes only against what the repository
itself says, so the comparison with ours is made here.
"""

import fcntl
import hashlib
import importlib.resources
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from watchword.streams.dev.errors import RuntimeChanged, ServerFailed

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MISSING_JGO = "the embedded Kafka is not installed: install watchword[dev]"


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file."""

    group: str
    name: str
    version: str
    sha256: str
    """Hexadecimal."""

    @property
    def file_name(self) -> str:
        """The file's name in the cache folder."""
        return f"{self.name}-{self.version}.jar"


def read_lock(text: str) -> list[Jar]:
    """Read a `jgo.lock.toml`.

    Raises:
        RuntimeChanged: it is not a list of jars that each have a SHA-256.
    """
    try:
        entries = cast("list[dict[str, str]]", tomllib.loads(text)["dependencies"])
        jars = [Jar(e["groupId"], e["artifactId"], e["version"], e["sha256"]) for e in entries]
        whole = jars and all(
            _SHA256.fullmatch(jar.sha256) and _NAME.fullmatch(jar.file_name) for jar in jars
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        whole, jars = False, []
    if not whole:
        message = "the lock of the Kafka runtime is not a list of jars with a SHA-256 each"
        raise RuntimeChanged(message)
    return jars


def pinned_jars() -> list[Jar]:
    """Return what this release was tested with.

    Raises:
        RuntimeChanged: the lock is damaged.
    """
    lock = importlib.resources.files("watchword.streams.dev") / "runtime" / "jgo.lock.toml"
    return read_lock(lock.read_text(encoding="utf-8"))


def default_cache() -> Path:
    """Return the folder of the jars: `.jgo` of a checkout, else in the user's cache."""
    checkout = Path(__file__).parents[4]
    if (checkout / "pyproject.toml").is_file() and (checkout / "streams").is_dir():
        return checkout / ".jgo"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "watchword" / "jgo"


def class_path(cache: Path, jars: Sequence[Jar]) -> str:
    """Return the class path, after fetching what is missing and checking every byte.

    It lists the pinned files one by one, so that whatever else lies in the folder is not loaded.
    The first time takes 10 s and needs the network; later 0.1 s.

    Raises:
        RuntimeChanged: a file is not the one that was pinned.
        ServerFailed: a file cannot be fetched.
    """
    folder = cache / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    if any(not (folder / jar.file_name).is_file() for jar in jars):
        # One process fetches; others that start meanwhile wait, and find the files there.
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            missing = [jar for jar in jars if not (folder / jar.file_name).is_file()]
            _fetch(missing, folder)
    for jar in jars:
        check(folder / jar.file_name, jar)
    return os.pathsep.join(str(folder / jar.file_name) for jar in jars)


def check(file: Path, jar: Jar) -> None:
    """Compare a file with its pinned hash.

    Raises:
        RuntimeChanged: it differs.
    """
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != jar.sha256:
        message = (
            f"{file} is not the pinned file: its SHA-256 is {found}, not {jar.sha256}. "
            "Java was not started. If you did not change it, find out who did; "
            "remove it to fetch it again"
        )
        raise RuntimeChanged(message)


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    try:
        # Late: half a second, and only the first time.
        from jgo.config import GlobalSettings  # noqa: PLC0415
        from jgo.constants import MAVEN_CENTRAL_URL  # noqa: PLC0415
        from jgo.maven import MavenContext  # noqa: PLC0415
    except ImportError:
        raise ServerFailed(_MISSING_JGO) from None
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as staging:
        maven = MavenContext(
            repo_cache=Path(staging),
            # A mirror that the user has configured for jgo is honoured.
            remote_repos={"central": MAVEN_CENTRAL_URL} | GlobalSettings.load().repositories,
            timeout=60,
        )
        for jar in jars:
            artifact = maven.project(jar.group, jar.name).at_version(jar.version).artifact()
            try:
                fetched = artifact.resolve()
            except (RuntimeError, OSError) as error:  # requests' errors are OSErrors
                message = f"cannot fetch {jar.group}:{jar.name}:{jar.version}: {error}"
                raise ServerFailed(message) from error
            check(fetched, jar)
            # Whole or not at all: an interrupted fetch leaves nothing that looks like a jar.
            shutil.move(fetched, folder / jar.file_name)
