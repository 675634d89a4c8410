"""What an attestor may return, field by field.

A stranger's value that the core, the store or the answer could not carry is found here, as that
attestor's bug, and not later, where it would stop others.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeGuard, cast
from uuid import UUID

from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    Staged,
    Subject,
    is_digest,
)
from watchword.handlers.crypto.profile import TENANT
from watchword.handlers.join.reading import TOKEN_ID
from watchword.schemas.ids import ROLES

MAX_CHALLENGE_BYTES = 64 * 1024
MAX_STATE_BYTES = 96 * 1024
"""What fits into the `state` of a request, in base64."""

MAX_TEXT = 512
"""Characters of a hardware key, a key statement or a subject's value."""

MAX_LIST = 256
"""Kinds, subjects, spends and uses of one admission."""


def fault_of(found: Any) -> str | None:  # noqa: ANN401 - a stranger's value
    """Return what is wrong with the result of a verification, or None. The text quotes no value."""
    match found:
        case Admission():
            return _fault_in_admission(cast("Any", found))
        case Challenge():
            return _fault_in_challenge(cast("Any", found))
        case Approval():
            return _fault_in_approval(cast("Any", found))
        case _:
            return "neither an admission nor a deferral"


def fault_in_effects(staged: Staged) -> str | None:
    """Return what is wrong with staged effects, or None. `use_once` has checked the subjects."""
    spends = cast("list[Any]", staged.spends)
    if len(spends) > MAX_LIST or len(staged.uses) > MAX_LIST:
        return "too many effects"
    if not all(isinstance(token, str) and TOKEN_ID.fullmatch(token) for token in spends):
        return "spends something that is no token id"
    return None


def is_slug(value: Any) -> bool:  # noqa: ANN401 - a stranger's value
    """Tell whether a value is a tenant's, pool's or site's name."""
    return isinstance(value, str) and TENANT.fullmatch(value) is not None


def _fault_in_admission(found: Any) -> str | None:  # noqa: ANN401 - fields may hold anything
    for name, holds in _MUST_BE:
        if not holds(getattr(found, name)):
            return f"{name} is malformed"
    for name, holds in _MAY_BE:
        if (value := getattr(found, name)) is not None and not holds(value):
            return f"{name} is malformed"
    return None


def _fault_in_challenge(found: Any) -> str | None:  # noqa: ANN401 - fields may hold anything
    if not isinstance(found.challenge, bytes) or len(found.challenge) > MAX_CHALLENGE_BYTES:
        return "challenge is malformed"
    if not isinstance(found.state, bytes) or not 0 < len(found.state) <= MAX_STATE_BYTES:
        return "state is malformed"
    at = found.not_after
    if not isinstance(at, datetime) or at.tzinfo is None:
        return "not_after is malformed"
    return None


def _fault_in_approval(found: Any) -> str | None:  # noqa: ANN401 - fields may hold anything
    if not is_digest(found.subject):
        return "subject is malformed"
    if not isinstance(found.grant, Admission):
        return "grant is malformed"
    facts: Any = found.facts
    if not _is_mapping(facts) or not all(_is_text(k) and _is_text(v) for k, v in facts.items()):
        return "facts are malformed"
    return _fault_in_admission(found.grant)


def _is_text(value: Any) -> bool:  # noqa: ANN401 - a stranger's value
    # Printable: neither NUL nor a lone surrogate, which PostgreSQL would refuse for all.
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable()


def _is_subject(value: Any) -> bool:  # noqa: ANN401 - a stranger's value
    return isinstance(value, Subject) and _is_text(value.kind) and _is_text(value.value)


def _are(values: Any, each: Callable[[Any], bool]) -> bool:  # noqa: ANN401 - a stranger's value
    return _is_tuple(values) and len(values) <= MAX_LIST and all(map(each, values))


def _is_role(value: Any) -> bool:  # noqa: ANN401 - a stranger's value
    return isinstance(value, str) and value in ROLES


def _is_token_id(value: Any) -> bool:  # noqa: ANN401 - a stranger's value
    return isinstance(value, str) and TOKEN_ID.fullmatch(value) is not None


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


_MUST_BE: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("tenant", is_slug),
    ("role", _is_role),
    ("pool", is_slug),
    ("subjects", lambda value: _are(value, _is_subject)),
)
_MAY_BE: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("site", is_slug),
    ("node_id", lambda value: isinstance(value, UUID)),
    ("token_id", _is_token_id),
    ("bind", is_digest),
    ("certificate", is_digest),
    ("allowed_kinds", lambda value: _are(value, _is_text)),
    ("node_key_uri", _is_text),
    ("hardware_key", _is_text),
)
"""The fields of an admission, and what each has to be unless it is None."""
