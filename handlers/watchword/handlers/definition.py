"""Whether something is an attestor, and a usable one: checked when it is defined and when it is registered.

What can be wrong is told at once, in full sentences, and before a machine comes. This module knows the seam
only by its form, so that the seam can hand its parts to authors.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

from watchword.handlers.errors import ConfigRefused
from watchword.schemas.ids import RESERVED_ATTESTOR_IDS, ROLES, Role
from watchword.schemas.reasons import CORE, REASON, STANDARD, STANDARD_BY_NAME, Reason
from watchword.schemas.requests import ATTESTOR_ID

if TYPE_CHECKING:
    from watchword.handlers.attestor import Admission, Attestor, Deferral, Evidence, JoinContext

_Seen = TypeVar("_Seen", bound="Attestor")

Verify = Callable[["Evidence", "JoinContext"], Awaitable["Admission | Deferral"]]
"""The verification itself: an `async def` of evidence and context."""

OnRefusal = Callable[[str], None]
"""Told the reason of each refusal that an attestor made. What it raises is logged and otherwise ignored."""

OURS = frozenset(("join-token", "x509pop", "image", "discovery", "tpm", "cloud-iid"))
"""The ids whose reasons may have codes of ours."""

MOST_ID_CHARACTERS_WITH_SQL = 40
"""PostgreSQL cuts names at 63, and a cut name may be somebody else's: of a role, or of a table."""

_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}", re.ASCII)
_CODE = re.compile(r"[A-Z][A-Z0-9]{1,7}[0-9]{4}", re.ASCII)
_OUR_CODE = re.compile(r"WJ[0-9]{4}")
_SEVERITIES = frozenset(("low", "medium", "high"))
_SENTENCE = 300
_MOST_REASONS = 256
_CORE_CODES = {reason.code: reason for reason in (*CORE.values(), *STANDARD)}


@dataclass(frozen=True, slots=True)
class Defined:
    """What `define_attestor` returns: an attestor that is checked and does not change any more."""

    id: str
    version: str
    roles: frozenset[Role]
    reasons: tuple[Reason, ...]
    uses_tx: bool
    package: str | None
    on_refusal: OnRefusal | None
    _verify: Verify
    at_once: int | None = None

    async def verify(self, evidence: "Evidence", context: "JoinContext") -> "Admission | Deferral":
        """See `Attestor.verify`."""
        return await self._verify(evidence, context)


def define_attestor(  # noqa: PLR0913 - each is a part of an attestor
    id: str,  # noqa: A002 - the contract's name
    *,
    version: str,
    roles: Iterable[Role],
    verify: Verify,
    reasons: Iterable[Reason] = (),
    uses_tx: bool = False,
    package: str | None = None,
    on_refusal: OnRefusal | None = None,
    at_once: int | None = None,
) -> Defined:
    """Return an attestor made of a function; it is checked, and frozen.

    Args:
        id: A DNS label of at most 63 characters; machines name it in their requests.
        version: Up to four numbers, such as `1` or `2.10`. A challenge that one version made is not
            answered under another.
        roles: The roles that it admits: some of `node`, `site`, `ramdisk`.
        verify: An `async def` of evidence and context.
        reasons: Why it refuses, besides the standard reasons. Codes begin with letters of your own.
        uses_tx: Whether `context.tx` is wanted: a transaction of its own for each join, which is slower.
        package: The package that has a folder `migrations` with the attestor's own tables.
        on_refusal: Told each reason with which this attestor refuses.
        at_once: How many of its verifications one worker runs at the same time; as many as a batch has if None.
            Those for which there was no time are answered `UNAVAILABLE`.

    Raises:
        ConfigRefused: with every fault.
    """
    declared = tuple(reasons)
    problems = faults_of(
        SimpleNamespace(id=id, version=version, roles=roles, reasons=declared, at_once=at_once)
    )
    if not _is_async(verify):
        problems.append(f"attestor {id!r}: verify is no `async def`")
    if problems:
        raise ConfigRefused(problems)
    return Defined(
        id=id,
        version=version,
        roles=frozenset(roles),
        reasons=declared,
        uses_tx=uses_tx,
        package=package,
        on_refusal=on_refusal,
        _verify=verify,
        at_once=at_once,
    )


def check_attestor(attestor: _Seen) -> _Seen:
    """Return an attestor that is an object of a class of the author's, after the same checks.

    Raises:
        ConfigRefused: with every fault.
    """
    if not is_attestor(attestor):
        message = (
            f"{type(attestor).__name__} is no attestor: it has no id, version, roles or verify"
        )
        raise ConfigRefused([message])
    problems = faults_of(attestor)
    if not _is_async(attestor.verify):
        problems.append(f"attestor {attestor.id!r}: verify is no `async def`")
    if problems:
        raise ConfigRefused(problems)
    return attestor


def is_attestor(found: object) -> "TypeGuard[Attestor]":
    """Tell whether something has the form of an attestor, whatever else is wrong with it."""
    # A class has all of it too, and cannot verify anything.
    return (
        not inspect.isclass(found)
        and all(hasattr(found, name) for name in ("id", "version", "roles"))
        and callable(getattr(found, "verify", None))
    )


def brings_sql(attestor: object) -> bool:
    """Tell whether an attestor brings its own SQL."""
    return bool(getattr(attestor, "uses_tx", False))


def at_once(attestor: object) -> int | None:
    """Return how many verifications of an attestor may run at the same time in one worker; None is no limit."""
    most: int | None = getattr(attestor, "at_once", None)
    return most


def author_role(attestor: str) -> str:
    """Return the role of the database that an attestor's own SQL runs with. Ids have no underscores, so each has its own."""
    return f"plg_{attestor.replace('-', '_')}"


def faults_of(found: Any) -> list[str]:  # noqa: ANN401 - a stranger's object
    """Return what is wrong with one attestor, by itself."""
    shown = repr(found.id)[:80]
    if not isinstance(found.id, str) or not ATTESTOR_ID.fullmatch(found.id):
        return [f"{shown} is no attestor id: a DNS label of at most 63 characters"]
    faults: list[str] = []
    if found.id in RESERVED_ATTESTOR_IDS:
        faults.append(f"the id {shown} is reserved")
    if not isinstance(found.version, str) or not _VERSION.fullmatch(found.version):
        faults.append(
            f"attestor {shown} has no usable version: {found.version!r:.40}, not like '1' or '2.10'"
        )
    if brings_sql(found) and len(found.id) > MOST_ID_CHARACTERS_WITH_SQL:
        faults.append(
            f"attestor {shown} brings its own SQL: its id has at most {MOST_ID_CHARACTERS_WITH_SQL} characters"
        )
    most = getattr(found, "at_once", None)
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        faults.append(f"attestor {shown}: at_once is {most!r:.40}, no number of at least 1")
    faults += _role_faults(shown, found.roles)
    faults += _reason_faults(found.id, getattr(found, "reasons", ()))
    return faults


def clashes(attestors: Iterable[Any]) -> list[str]:
    """Return where attestors get in each other's way: one id, or one code for two reasons."""
    ids: set[str] = set()
    codes: dict[str, tuple[str, Reason]] = {}
    problems: list[str] = []
    for found in attestors:
        if found.id in ids:
            problems.append(f"two attestors have the id {found.id!r}")
        ids.add(found.id)
        for reason in getattr(found, "reasons", ()):
            other, first = codes.setdefault(reason.code, (found.id, reason))
            # The very same reason may be shared; one code with two meanings may not.
            if first != reason and other != found.id:
                problems.append(
                    f"attestors {other!r} and {found.id!r} both have the code {reason.code}:"
                    f" {first.name} and {reason.name}"
                )
    return problems


def _role_faults(shown: str, roles: object) -> list[str]:
    if isinstance(roles, str) or not isinstance(roles, Iterable):
        return [f"attestor {shown}: roles is no set of roles"]
    given = list(cast("Iterable[object]", roles))
    known = ", ".join(sorted(ROLES))
    if not given:
        return [f"attestor {shown} names no role (there is: {known})"]
    unknown = [role for role in given if not isinstance(role, str) or role not in ROLES]
    if unknown:
        names = ", ".join(sorted(repr(role)[:40] for role in unknown))
        return [f"attestor {shown} names unknown roles: {names} (there is: {known})"]
    return []


def _reason_faults(attestor: str, reasons: object) -> list[str]:
    if isinstance(reasons, str) or not isinstance(reasons, Iterable):
        return [f"attestor {attestor!r}: reasons is no list of reasons"]
    given = list(cast("Iterable[object]", reasons))
    if len(given) > _MOST_REASONS:
        return [f"attestor {attestor!r} declares more than {_MOST_REASONS} reasons"]
    faults: list[str] = []
    names: set[str] = set()
    codes: set[str] = set()
    for reason in given:
        if not isinstance(reason, Reason):
            faults.append(f"attestor {attestor!r}: {reason!r:.80} is no Reason")
            continue
        faults += [
            f"attestor {attestor!r}, reason {reason.name!r:.80}: {fault}"
            for fault in _faults_of_reason(attestor, reason, names, codes)
        ]
        names.add(reason.name)
        codes.add(reason.code)
    return faults


def _faults_of_reason(
    attestor: str,
    reason: Any,  # noqa: ANN401 - its author may have put anything into its fields
    names: set[str],
    codes: set[str],
) -> Iterable[str]:
    if not isinstance(reason.name, str) or not REASON.fullmatch(reason.name):
        yield "the name is not in kebab-case"
    elif reason.name in names:
        yield "it is declared twice"
    elif reason.name in STANDARD_BY_NAME and attestor not in OURS:
        yield "every attestor has it already; leave it out"
    if not isinstance(reason.code, str) or not _CODE.fullmatch(reason.code):
        yield f"{reason.code!r:.40} is no code: capital letters and four digits, such as ACME0001"
    elif reason.code in codes:
        yield f"the code {reason.code} is declared twice"
    elif reason.code in _CORE_CODES or (_OUR_CODE.fullmatch(reason.code) and attestor not in OURS):
        yield f"the code {reason.code} is reserved: WJ is for Watchword's own"
    if reason.severity not in _SEVERITIES:
        yield f"the severity is {reason.severity!r:.40}, not low, medium or high"
    if not isinstance(reason.sentence, str) or not 0 < len(reason.sentence) <= _SENTENCE:
        yield f"it needs a sentence of at most {_SENTENCE} characters"


def _is_async(verify: Any) -> bool:  # noqa: ANN401 - a stranger's object
    return inspect.iscoroutinefunction(verify) or inspect.iscoroutinefunction(
        getattr(verify, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    )
