"""The command line: `watchword`. Each group of commands is a module, imported when it is used."""

from watchword.streams.cli.main import main

__all__ = ["main"]
