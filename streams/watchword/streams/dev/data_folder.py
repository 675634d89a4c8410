"""Where `watchword dev` keeps everything: one folder, met again by the next run."""

import json
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from watchword.handlers.errors import BadArgument
from watchword.streams.dev.free_ports import free_port, is_free

_SOCKET_LIMIT = 100
"""A Unix socket's path has 107 bytes on Linux and 103 on macOS."""

_PORTS = (
    "gateway",
    "gateway-health",
    "console",
    "console-health",
    "signer",
    "worker-1",
    "worker-2",
    "relay",
    "keeper",
)


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The folder and what is in it. `root` is absolute."""

    root: Path

    @property
    def postgres(self) -> Path:
        """PostgreSQL's folder."""
        return self.root / "postgres"

    @property
    def kafka(self) -> Path:
        """Kafka's folder."""
        return self.root / "kafka"

    @property
    def keys(self) -> Path:
        """The keys of the deployment."""
        return self.root / "keys"

    @property
    def logs(self) -> Path:
        """One log for each process."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """What one run tells the other processes; private."""
        return self.root / "run"

    @property
    def agents(self) -> Path:
        """A state directory for each machine that joins."""
        return self.root / "agents"

    @property
    def config(self) -> Path:
        """The configuration of all processes, also for commands by hand."""
        return self.root / "watchword.toml"

    @property
    def database_url(self) -> Path:
        """PostgreSQL's URL with its password."""
        return self.run / "database.url"

    @property
    def session_key(self) -> Path:
        """What signs the console's sessions: they outlive a run."""
        return self.run / "session.key"

    @property
    def token(self) -> Path:
        """A join token for machines that are joined by hand."""
        return self.run / "token"

    def prepare(self) -> None:
        """Make the folders. Only what has secrets is closed to others: servers have users of their own."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        for private in (self.keys, self.run, self.agents):
            private.mkdir(mode=0o700, exist_ok=True)

    def signer_socket(self) -> Path:
        """Return a path for the signer's socket that is short enough for the system."""
        path = self.run / "signer.sock"
        if len(str(path).encode()) <= _SOCKET_LIMIT:
            return path
        return Path(tempfile.mkdtemp(prefix="watchword-")) / "signer.sock"

    def ports(self) -> dict[str, int]:
        """Return free ports by process; the last run's where they are free, so that addresses stay."""
        file = self.run / "ports.json"
        try:
            known: dict[str, int] = json.loads(file.read_text())
        except (OSError, ValueError):
            known = {}
        ports = {
            name: known[name] if name in known and is_free(known[name]) else free_port()
            for name in _PORTS
        }
        file.write_text(json.dumps(ports))
        return ports

    def write_private(self, path: Path, text: str) -> None:
        """Write a file that nobody else may read."""
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(text)

    def write_config(self, sections: Mapping[str, Mapping[str, object]], more: str = "") -> None:
        """Write the configuration file, with `more` TOML at its end; there is no secret in it."""
        lines = ["# Written by `watchword dev`; the next run writes it again.", ""]
        for section, values in sections.items():
            lines.append(f"[{section}]")
            lines += [f"{name} = {_toml(value)}" for name, value in values.items()]
            lines.append("")
        self.config.write_text("\n".join(lines) + more)


def attestor_tables(file: Path) -> str:
    """Return the text of a TOML file that has `[attestors]` and nothing else.

    Raises:
        BadArgument: it cannot be read, or has something else.
    """
    try:
        text = file.read_text("utf-8")
        tables = set(tomllib.loads(text))
    except OSError as error:
        message = f"{file}: {error.strerror or 'cannot be read'}"
        raise BadArgument(message) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{file} is not TOML: {error}"
        raise BadArgument(message) from None
    if tables - {"attestors"}:
        message = f"{file}: `dev` takes [attestors] and nothing else; all the rest it writes itself"
        raise BadArgument(message)
    return text


def _toml(value: object) -> str:
    """Return numbers and strings as TOML; its basic strings take JSON's escapes (TOML 1.0, String)."""
    return json.dumps(str(value) if isinstance(value, Path) else value)
