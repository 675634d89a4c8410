"""Which attestors a service has, and which reasons each may refuse with."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import structlog

from watchword.handlers.attestor import Attestor
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.ids import RESERVED_ATTESTOR_IDS, ROLES, AttestorId
from watchword.schemas.reasons import CORE_BY_ID, OTHER, REASON, STANDARD_BY_NAME, Reason
from watchword.schemas.requests import ATTESTOR_ID

_log = structlog.get_logger(__name__)

_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}")


@dataclass(slots=True)
class Registered:
    """One attestor with its declared reasons, and how often it has been late in a row."""

    attestor: Attestor
    reasons: Mapping[str, Reason] = field(default_factory=dict[str, Reason])

    def reason(self, name: str) -> Reason:
        """Return the declared or standard reason; any other folds into `other`, its text into the log."""
        # An author may raise with anything at all, also with what cannot be hashed.
        known = isinstance(name, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        found = (self.reasons.get(name) or STANDARD_BY_NAME.get(name)) if known else None
        if found is None:
            _log.warning("undeclared reason", attestor=self.attestor.id, reason=repr(name)[:120])
            return STANDARD_BY_NAME[OTHER]
        return found


class Catalog:
    """The attestors of one service by id."""

    def __init__(self, attestors: Iterable[object]) -> None:
        """Take any mixed list: what is not an attestor is skipped with a log line.

        Raises:
            ConfigRefused: two attestors of one id, a reserved or malformed id, a bad version, unknown roles.
        """
        self._by_id: dict[AttestorId, Registered] = {}
        problems: list[str] = []
        for found in attestors:
            if not _is_attestor(found):
                _log.warning("not an attestor, skipped", type=type(found).__name__)
                continue
            attestor = cast("Attestor", found)
            faults = _faults(attestor)
            if attestor.id in self._by_id:
                faults.append(f"two attestors have the id {attestor.id!r}")
            problems += faults
            declared: Iterable[Reason] = getattr(found, "reasons", ())
            if not faults:
                self._by_id[AttestorId(attestor.id)] = Registered(
                    attestor,
                    {reason.name: reason for reason in declared if REASON.fullmatch(reason.name)},
                )
        if problems:
            raise ConfigRefused(problems)

    def get(self, attestor: AttestorId) -> Registered | None:
        """Return the attestor of this id."""
        return self._by_id.get(attestor)

    def reason(self, attestor: AttestorId, name: str) -> Reason:
        """Return the reason of a refusal, whoever made it."""
        if (found := CORE_BY_ID.get(attestor, {}).get(name)) is not None:
            return found
        registered = self._by_id.get(attestor)
        return STANDARD_BY_NAME[OTHER] if registered is None else registered.reason(name)

    def ids(self) -> list[AttestorId]:
        """Return the ids in order."""
        return sorted(self._by_id)


def _is_attestor(found: object) -> bool:
    return all(hasattr(found, name) for name in ("id", "version", "roles")) and callable(
        getattr(found, "verify", None)
    )


def _faults(found: Any) -> list[str]:  # noqa: ANN401 - a stranger's object
    shown = repr(found.id)[:80]
    faults: list[str] = []
    if not isinstance(found.id, str) or not ATTESTOR_ID.fullmatch(found.id):
        return [f"{shown} is no attestor id"]
    if found.id in RESERVED_ATTESTOR_IDS:
        faults.append(f"the id {shown} is reserved")
    if not isinstance(found.version, str) or not _VERSION.fullmatch(found.version):
        faults.append(f"attestor {shown} has no usable version")
    if not found.roles or not frozenset(found.roles) <= ROLES:
        faults.append(f"attestor {shown} names unknown roles or none")
    return faults
