"""What switches the guards of keys off: patches of a running interpreter, never loaded by production."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from watchword.handlers.crypto import belief, endorsements, keydirectory, keyrotation
from watchword.handlers.crypto.documents import read_document
from watchword.handlers.crypto.jws import unverified_payload
from watchword.schemas.endorsement import KeyEndorsement


def _replace(owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - a module or class
    """Put something else in a guard's place."""
    setattr(owner, name, value)


def handovers_are_believed() -> None:
    """Take a statement for the word of whoever it is said to be by."""

    def read(token: bytes, *_: object, **__: object) -> Any:  # noqa: ANN401 - a signing key
        return read_document(KeyEndorsement, unverified_payload(token)).signing

    _replace(endorsements, "read_endorsement", read)


def keys_left_behind_count() -> None:
    """Judge everything from the pin, whatever is trusted now."""
    _replace(belief.Belief, "place", property(lambda _: 0))


def the_first_signing_key_stays() -> None:
    """Sign with the first key, whichever is active."""
    signing: Any = keydirectory.KeyDirectory.signing

    def first(self: Any, kid: str | None = None) -> Any:  # noqa: ANN401 - a signer
        del kid
        return signing(self)

    _replace(keydirectory.KeyDirectory, "signing", first)


def nothing_needs_a_retired_key() -> None:
    """Delete whatever is not the active one."""
    check: Any = keyrotation.check_retiring

    def check_active(row: Any, now: object, **_: object) -> None:  # noqa: ANN401 - a row
        check(replace(row, needed_until=None), now, is_compromised=False)

    _replace(keyrotation, "check_retiring", check_active)


KEY_SWITCHES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        handovers_are_believed,
        keys_left_behind_count,
        the_first_signing_key_stays,
        nothing_needs_a_retired_key,
    )
}
