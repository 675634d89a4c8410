"""What a node is told to do, and what it says became of it.

A command is a JWS of type `watchword-command` over the canonical JSON of `Command`, signed by the key that
signs answers. It comes inside the sealed answer to a request of kind `commands`; it names one node and the
certificate that this node had when it was handed out, and it ends.
"""

import re
from typing import Annotated, Literal

from pydantic import Field

from watchword.schemas.canonical import canonical
from watchword.schemas.requests import Wire
from watchword.schemas.responses import Instant

KIND = re.compile(r"[a-z0-9][a-z0-9-]*(?:\.[a-z0-9][a-z0-9-]*)*")
"""How a kind is written: labels of lower-case letters, digits and hyphens, with dots between them."""

MAX_KIND = 64
"""Characters of a kind. It is the name of a handler's file on the node, too."""

MAX_PAYLOAD_BYTES = 64 * 1024
"""What one command can bring along. Larger things are fetched by the handler, from what the payload names."""

MAX_SENT = 16
"""Commands in one answer."""

MAX_SENT_BYTES = 96 * 1024
"""Payloads in one answer: base64 four times over, they fit into one record of `join.responses`."""

MAX_REPORTS = 64
"""What one request says of commands that have ended."""

Kind = Annotated[str, Field(pattern=rf"^(?:{KIND.pattern})$", max_length=MAX_KIND)]
CommandId = Annotated[
    str, Field(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
]
"""A UUIDv7: what a node runs once."""

Result = Literal[
    "done", "failed", "timed-out", "interrupted", "no-handler", "not-for-us", "too-late"
]
"""What became of a command on its node.

Done and failed: its handler ended, with status 0 or another. Timed out: it was stopped. Interrupted: the
machine went down with it, so it ran in part or not at all. No handler: there is none that may be run. Not for
us: the node's certificate does not allow the kind. Too late: it had expired. What was not done is never tried
again under the same id.
"""


class Command(Wire):
    """One command to one node."""

    version: Literal[1] = 1
    id: CommandId
    node_id: str
    certificate_serial: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """The certificate of the node against which the kind was checked."""
    kind: Kind
    payload: Annotated[str, Field(max_length=MAX_PAYLOAD_BYTES * 4 // 3 + 4)]
    """Base64; what the handler gets on its standard input."""
    not_after: Instant

    def write(self) -> bytes:
        """Return canonical JSON."""
        return canonical(self.model_dump(by_alias=True, mode="json"))


class Report(Wire):
    """What became of one command."""

    id: CommandId
    result: Result
    exit_status: Annotated[int, Field(ge=-255, le=255)] | None = None
    """The handler's exit status; the number of the signal that ended it, negative; None if it did not end by itself."""


class Reports(Wire):
    """What became of commands since the node asked last."""

    items: Annotated[tuple[Report, ...], Field(strict=False, max_length=MAX_REPORTS)] = ()

    def write(self) -> bytes:
        """Return canonical JSON."""
        return canonical(self.model_dump(by_alias=True, mode="json"))
