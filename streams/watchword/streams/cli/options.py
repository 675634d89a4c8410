"""Options that many commands share."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from watchword.streams import logs
from watchword.streams.cli.output import Output
from watchword.streams.settings import Settings, load


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Configured:
    """For commands that read the configuration."""

    config: Path | None = None
    """The configuration file, instead of $WATCHWORD_CONFIG, $XDG_CONFIG_HOME/watchword/config.toml or
    /etc/watchword/config.toml."""

    def settings(self, process: str | None = None) -> Settings:
        """Return the settings, and log as they say: a process as configured, a command only what is wrong.

        Raises:
            ConfigRefused: with every problem.
        """
        settings = load(file=self.config).settings
        if process is None:
            logs.configure(log_format="console", level="WARNING", libraries=logging.CRITICAL)
        else:
            logs.configure(
                log_format=settings.log.format, level=settings.log.level, process=process
            )
        return settings


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Shown(Configured):
    """For commands with a result."""

    output: Output = "table"
    """`table` for people, `json` for programs, `jsonl` for one object a line."""

    json: Annotated[bool, Parameter(negative="")] = False
    """The same as `--output json`."""

    @property
    def form(self) -> Literal["table", "json", "jsonl"]:
        """Return how to write the result."""
        return "json" if self.json else self.output


SHOWN = Shown()
CONFIGURED = Configured()
