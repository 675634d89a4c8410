"""Shows a join token: the machine's half of `join-token`."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from watchword.handlers.attestors.join_token.evidence import encode, parse_token
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence, read_source
from watchword.schemas.ids import Role

_MAX_FILE_BYTES = 4096


class JoinTokenProver:
    """Proves knowledge of a token's secret. Keeps no copy between rounds: the source is read each time."""

    id = "join-token"

    def __init__(self, source: Callable[[], str]) -> None:
        """Take what returns the token's text, or raises `NoEvidence` or `BadArgument`."""
        self._source = source

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Show this token (from standard input, say; never from the command line, which others see).

        Raises:
            BadArgument: it is no token.
        """
        parse_token(text)
        return cls(lambda: text)

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Show the token in this file, which may be written later than the agent starts."""
        return cls(lambda: _read(path))

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the token. It is bound to the CSR by the seal around it, and by nothing of its own.

        Raises:
            NoEvidence: the source has no token now.
            BadArgument: what it has is no token.
        """
        del csr_sha256, role
        token = parse_token(self._source())
        return encode(token.id, token.secret)

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Raise `NoEvidence`: a bearer token has nothing to answer with."""
        del challenge, csr_sha256, role
        message = "a join token cannot answer a challenge"
        raise NoEvidence(message)


def _read(path: Path) -> str:
    content = read_source(path, _MAX_FILE_BYTES)
    if len(content) > _MAX_FILE_BYTES:
        message = f"{path} is too large for a join token"
        raise BadArgument(message)
    # Other bytes than ASCII make a text that is no token, and `parse_token` says so.
    return content.decode("ascii", errors="replace")
