"""Named points in a process where the fault suite may end it, at exactly that point.

`hit("after-commit-before-response")` does nothing and costs one call of an empty function, until
`install` was called. Production never calls it: the command line imports the module that the
variable `WATCHWORD_FAILPOINTS_MODULE` names when a process starts, and that module, which lives
with the tests, calls `install`. There is no other way in, and no name of a point comes from outside.

Callers write `failpoints.hit(...)`, never `from … import hit`: that would bind the empty function.

The points, in the order of a request's way:

=================================  ==========================================================
`before-commit`                    the transaction is complete but for its COMMIT
`after-commit-before-response`     committed, and no answer has been sent
`after-response-before-offset`     the answer is acknowledged, its offset is not marked done
`relay-before-send`                a relay has read a wave, and sent none of it
`relay-after-send`                 the wave is acknowledged, and no cursor was moved
`keeper-after-summary`             summaries are committed with the keeper's cursor
`command-accepted`                 an agent has commands on its disk, and has begun none
`command-before-run`               a command's handler was found, and nothing was begun
`command-started`                  the process that runs a handler was started
=================================  ==========================================================
"""

import importlib
from collections.abc import Callable, Mapping

Hook = Callable[[str], None]
"""Takes the name of the point that was reached."""

VARIABLE = "WATCHWORD_FAILPOINTS_MODULE"
"""Names a module to import at the start of a process. Read by the command line alone."""


def _nothing(_name: str, /) -> None:
    """Be production."""


hit: Hook = _nothing
"""Say that a point was reached."""


def install(hook: Hook) -> None:
    """Call `hook` at every point from now on."""
    global hit  # noqa: PLW0603 - the one switch; a module attribute is the cheapest there is
    hit = hook


def load(environment: Mapping[str, str]) -> None:
    """Import the module that `VARIABLE` names in these variables, if it is set; it calls `install`.

    Raises:
        ImportError: there is no such module.
    """
    if name := environment.get(VARIABLE):
        importlib.import_module(name)
