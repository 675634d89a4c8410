"""Everything that the handlers raise.

WatchwordError
├── Refused               the machine may not join; the reason is for the security team alone
├── InvalidInput          the request is not usable; counted, answered INVALID_INPUT, not a refusal
├── Unsupported           the request asks for what this deployment does not have
├── SealBroken            an HPKE or state ciphertext does not open
│   └── SealKeyUnknown    it names a key that is not in use
├── SignatureBroken       a JWS or certificate signature does not hold
├── NotProvable           another attestor's proof is not to be had here
├── AttestorBroken        an attestor broke its contract, raised, or took too long: never an admission
├── OutOfMemory           an attestor allocated more than there is; a MemoryError too, and ends the process
├── Unavailable           something outside is away; try again
│   ├── StoreUnavailable
│   └── SignerUnavailable
├── StoreRejected         PostgreSQL refused the statement for its data or its shape: our own bug
└── OperatorError         told to an operator in full
    ├── ConfigRefused     the configuration is not usable; all problems at once
    ├── BadArgument       exit 2
    ├── NotFound          exit 3
    ├── Conflict          somebody else was first, or it is in use; exit 4
    └── Denied            exit 5
"""

import inspect
from collections.abc import Sequence
from hashlib import sha256

from watchword.schemas.ids import AttestorId, TenantId


class WatchwordError(Exception):
    """Something went wrong."""

    def __init__(self, message: str | None = None) -> None:
        """Use the class's docstring where no better message is known."""
        super().__init__(message or inspect.getdoc(self))


class Refused(WatchwordError):
    """The machine may not join.

    `attestor` and `reason` make the refusal `<attestor>:<reason>`; `tenant_id` is set only if the
    evidence authenticated that tenant. `tried` names the credential: the 32 bytes that `tried_digest`
    makes of its public id, or a subject's.
    """

    def __init__(
        self,
        attestor: AttestorId,
        reason: str,
        *,
        tenant_id: TenantId | None = None,
        tried: bytes | None = None,
    ) -> None:
        """Name who refuses, and why."""
        super().__init__(f"{attestor}:{reason}")
        self.attestor = attestor
        self.reason = reason
        self.tenant_id = tenant_id
        self.tried = tried


def tried_digest(attestor: str, name: str) -> bytes:
    """Return what stands for a credential in records: SHA-256 of `<attestor>:<public id>`."""
    return sha256(f"{attestor}:{name}".encode()).digest()


class InvalidInput(WatchwordError):
    """The request is not usable. `reason` is one of the core's, such as `csr-malformed`."""

    def __init__(self, reason: str) -> None:
        """Name the reason."""
        super().__init__(f"join:{reason}")
        self.reason = reason


class Unsupported(WatchwordError):
    """This deployment does not have what the request asks for. `reason` is one of the core's."""

    def __init__(self, reason: str) -> None:
        """Name the reason."""
        super().__init__(f"join:{reason}")
        self.reason = reason


class SealBroken(WatchwordError):
    """The sealed bytes do not open."""


class SealKeyUnknown(SealBroken):
    """The sealed bytes name a key that is not in use."""


class SignatureBroken(WatchwordError):
    """The signature does not hold."""


class NotProvable(WatchwordError):
    """Another attestor's proof is not to be had: it is not installed, or needs more than evidence."""


class AttestorBroken(WatchwordError):
    """The attestor did not keep its contract."""


class OutOfMemory(WatchwordError, MemoryError):
    """A verifier allocated more than the process may have. Nothing that the process still does can be relied on."""

    def __init__(self, attestor: str, where: str) -> None:
        """Name the attestor, and the file and line at which the memory was at its end."""
        super().__init__(f"{attestor} at {where}")
        self.attestor = attestor
        self.where = where


class Unavailable(WatchwordError):
    """A service that is needed is away."""


class StoreUnavailable(Unavailable):
    """PostgreSQL is away, or ended the connection; whether a commit happened is unknown."""


class SignerUnavailable(Unavailable):
    """The signer does not answer."""


class StoreRejected(WatchwordError):
    """PostgreSQL refused a statement (SQLSTATE class 21, 22, 23 or 42)."""


class OperatorError(WatchwordError):
    """The command cannot be carried out."""


class ConfigRefused(OperatorError):
    """The configuration is not usable."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Report every problem at once."""
        super().__init__("; ".join(problems))
        self.problems = list(problems)


class BadArgument(OperatorError):
    """An argument is not usable."""


class NotFound(OperatorError):
    """There is no such thing."""


class Conflict(OperatorError):
    """Somebody else was first, or it is in use."""


class Denied(OperatorError):
    """The operator's role does not allow it."""


def place_of(error: BaseException) -> str:
    """Return file and line where an exception was raised: no values."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return (
        "?"
        if traceback is None
        else f"{traceback.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno}"
    )
