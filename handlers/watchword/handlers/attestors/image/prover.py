"""Shows the secret of the image that the machine runs: the machine's half of `image`."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from watchword.handlers.attestors.image.evidence import (
    ImageEvidence,
    SecondEvidence,
    parse_image,
)
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence, Prover, read_source
from watchword.schemas.ids import Role, UnverifiedPayload

_MAX_FILE_BYTES = 4096


class ImageProver:
    """Proves knowledge of an image's secret. Keeps no copy between rounds: the source is read each time."""

    id = "image"

    def __init__(self, source: Callable[[], str], second: Prover | None = None) -> None:
        """Take what returns the secret's text, or raises `NoEvidence` or `BadArgument`.

        `second` is the prover of the attestor whose proof the image asks for beside its secret.
        """
        self._source = source
        self._second = second

    @classmethod
    def of_file(cls, path: Path, second: Prover | None = None) -> Self:
        """Show the secret in this file, which a first boot may still have to write."""
        return cls(lambda: _read(path), second)

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the secret. It is bound to the CSR by the seal around it, and by nothing of its own.

        Raises:
            NoEvidence: the source has no secret now, or the second prover no evidence.
            BadArgument: what it has is none.
        """
        if self._second is None:
            return self._shown(None)
        return self._shown(await self._second.evidence(csr_sha256, role))

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Return the secret again, with the second prover's answer to what is its challenge.

        Raises:
            NoEvidence: there is no second prover: a secret that is shown has nothing to answer with.
        """
        if self._second is None:
            message = "an image's secret cannot answer a challenge"
            raise NoEvidence(message)
        return self._shown(await self._second.answer(challenge, csr_sha256, role))

    def _shown(self, payload: bytes | None) -> bytes:
        shown = parse_image(self._source())
        if self._second is None or payload is None:
            return ImageEvidence(shown).encode()
        second = SecondEvidence(self._second.id, UnverifiedPayload(payload))
        return ImageEvidence(shown, second).encode()


def _read(path: Path) -> str:
    content = read_source(path, _MAX_FILE_BYTES)
    if len(content) > _MAX_FILE_BYTES:
        message = f"{path} is too large for an image's secret"
        raise BadArgument(message)
    # Other bytes than ASCII make a text that is no secret, and `parse_image` says so.
    return content.decode("ascii", errors="replace")
