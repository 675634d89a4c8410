"""Having a person say how many things they mean."""

import sys

from watchword.handlers.errors import BadArgument
from watchword.streams.cli.output import say


def confirm(verb: str, count: int, noun: str) -> None:
    """Return if the person at the terminal types the count; a `y` is typed without reading.

    Raises:
        BadArgument: nobody is there, or something else was typed.
    """
    if not sys.stdin.isatty():
        message = f"to {verb} without being asked, say --yes"
        raise BadArgument(message)
    say(f"Type {count} to {verb} {count} {noun}{'s' if count > 1 else ''}:")
    if sys.stdin.readline().strip() != str(count):
        message = f"nothing is done: {count} was not typed"
        raise BadArgument(message)
