"""Which attestors a service has, and which reasons each may refuse with."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from watchword.handlers.attestor import Attestor
from watchword.handlers.crypto.renewals import ProvesKeys
from watchword.handlers.definition import clashes, faults_of, is_attestor
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.ids import AttestorId
from watchword.schemas.reasons import CORE_BY_ID, OTHER, STANDARD_BY_NAME, Reason

_log = structlog.get_logger(__name__)


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
            ConfigRefused: two attestors of one id, a reserved or malformed id, a bad version, unknown roles,
                reasons that are malformed or have the code of others.
        """
        usable: list[Attestor] = []
        problems: list[str] = []
        for found in attestors:
            if not is_attestor(found):
                _log.warning("not an attestor, skipped", type=_name_of(found))
                continue
            faults = faults_of(found)
            if not faults:
                usable.append(found)
            problems += faults
        problems += clashes(usable)
        if problems:
            raise ConfigRefused(problems)
        self._by_id = {AttestorId(a.id): Registered(a, _reasons(a)) for a in usable}

    def __iter__(self) -> Iterator[Registered]:
        """Give the attestors."""
        return iter(self._by_id.values())

    def get(self, attestor: AttestorId) -> Registered | None:
        """Return the attestor of this id."""
        return self._by_id.get(attestor)

    def reason(self, attestor: AttestorId, name: str) -> Reason:
        """Return the reason of a refusal, whoever made it."""
        core = CORE_BY_ID.get(attestor)
        if core is not None and name in core:
            return core[name]
        registered = self._by_id.get(attestor)
        return STANDARD_BY_NAME[OTHER] if registered is None else registered.reason(name)

    def proving_keys(self) -> list[ProvesKeys]:
        """Return the attestors that can prove their key statements again, at a renewal."""
        # One that is metered is asked itself: only joins are counted there.
        attestors: list[object] = [
            getattr(found.attestor, "metered", found.attestor) for found in self._by_id.values()
        ]
        return [attestor for attestor in attestors if isinstance(attestor, ProvesKeys)]

    def ids(self) -> list[AttestorId]:
        """Return the ids in order."""
        return sorted(self._by_id)


def _reasons(attestor: Attestor) -> Mapping[str, Reason]:
    declared: Iterable[Reason] = getattr(attestor, "reasons", ())
    return {reason.name: reason for reason in declared}


def _name_of(found: object) -> str:
    """Return what to call a thing: a class by its own name, everything else by its class's."""
    return f"class {found.__name__}" if isinstance(found, type) else type(found).__name__
