"""Shows the secret of the image that the machine runs: the machine's half of `image`."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from watchword.handlers.attestors.image.evidence import parse_image
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence, read_source
from watchword.schemas.ids import Role

_MAX_FILE_BYTES = 4096


class ImageProver:
    """Proves knowledge of an image's secret. Keeps no copy between rounds: the source is read each time."""

    id = "image"

    def __init__(self, source: Callable[[], str]) -> None:
        """Take what returns the secret's text, or raises `NoEvidence` or `BadArgument`."""
        self._source = source

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Show the secret in this file, which a first boot may still have to write."""
        return cls(lambda: _read(path))

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the secret. It is bound to the CSR by the seal around it, and by nothing of its own.

        Raises:
            NoEvidence: the source has no secret now.
            BadArgument: what it has is none.
        """
        del csr_sha256, role
        return parse_image(self._source()).encode()

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Raise `NoEvidence`: a secret that is shown has nothing to answer with."""
        del challenge, csr_sha256, role
        message = "an image's secret cannot answer a challenge"
        raise NoEvidence(message)


def _read(path: Path) -> str:
    content = read_source(path, _MAX_FILE_BYTES)
    if len(content) > _MAX_FILE_BYTES:
        message = f"{path} is too large for an image's secret"
        raise BadArgument(message)
    # Other bytes than ASCII make a text that is no secret, and `parse_image` says so.
    return content.decode("ascii", errors="replace")
