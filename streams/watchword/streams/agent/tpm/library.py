"""tpm2-pytss, which is not everywhere and has few annotations, and its errors."""

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence


def library() -> Any:  # noqa: ANN401 - tpm2-pytss is not everywhere, and has few annotations
    """Return tpm2-pytss.

    Raises:
        BadArgument: it is not installed.
    """
    try:
        return importlib.import_module("tpm2_pytss")
    except ImportError as error:
        message = f"a TPM needs the extra `tpm` and libtss2 ({error})"
        raise BadArgument(message) from None


def code_of(error: Exception) -> int | None:
    """Return the response code of a TPM's error; None if it is another."""
    found = getattr(error, "rc", None)
    return None if found is None else int(found)


@contextmanager
def translated(tss: Any) -> Generator[None]:  # noqa: ANN401 - see `library`
    """Say of what a TPM did not do that there is no evidence now; its errors name no secret."""
    try:
        yield
    except tss.TSS2_Exception as error:
        message = f"the TPM: {error}"
        raise NoEvidence(message) from None
