"""What goes wrong with an embedded server; all of it is told to the operator in full."""

from watchword.handlers.errors import OperatorError


class ServerFailed(OperatorError):
    """An embedded server did not start, did not stop, or died."""


class RuntimeChanged(OperatorError):
    """A file of an embedded server is not the one that was pinned."""
