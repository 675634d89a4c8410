"""What is wrong with an attestor is told when it is defined or registered, not when a machine comes."""

from collections.abc import Mapping
from typing import Any

import pytest

from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    Reason,
    Role,
    TenantId,
    check_attestor,
    define_attestor,
)
from watchword.handlers.catalog import Catalog
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.ids import AttestorId

BAD_TAG = Reason("bad-tag", "ACME0001", "high", "The tag is not signed by the vendor.", attack=True)


async def verify(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
    del evidence
    return Admission(TenantId("acme"), context.role, "web")


def asset(**changes: Any) -> Any:  # noqa: ANN401 - whatever an author may write
    sides: dict[str, Any] = {
        "id": "acme-asset",
        "version": "1.0",
        "roles": {"node"},
        "verify": verify,
        "reasons": [BAD_TAG],
    }
    sides |= changes
    return define_attestor(sides.pop("id"), **sides)


class Asset:
    """The class form, as an author writes it."""

    id = "acme-asset"
    version = "2"
    roles: frozenset[Role] = frozenset(("node",))
    reasons = (BAD_TAG,)

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Challenge:
        del evidence
        return Admission(TenantId("acme"), context.role, "web")


def test_defined_attestor_is_what_was_said_and_stays_so() -> None:
    """Nobody changes a version or a role under a running worker."""
    made = asset()
    assert (made.id, made.version, made.roles, made.reasons) == (
        "acme-asset",
        "1.0",
        frozenset(("node",)),
        (BAD_TAG,),
    )
    with pytest.raises(AttributeError):
        made.version = "2"
    assert Catalog([made]).ids() == ["acme-asset"]


def test_class_form_passes_the_same_checks() -> None:
    """An attestor with settings of its own is an object; it is looked at as closely."""
    made = Asset()
    assert check_attestor(made) is made
    made.version = "one"
    with pytest.raises(ConfigRefused, match="no usable version"):
        check_attestor(made)


WRONG: Mapping[str, tuple[dict[str, Any], str]] = {
    "an id with capitals": ({"id": "Acme"}, "'Acme' is no attestor id"),
    "an id that is too long": ({"id": "a" * 64}, "no attestor id"),
    "an id that is a number": ({"id": 5}, "5 is no attestor id"),
    "the core's id": ({"id": "renew"}, "'renew' is reserved"),
    "a version in words": ({"version": "one"}, "no usable version: 'one'"),
    "a version of five parts": ({"version": "1.2.3.4.5"}, "no usable version"),
    "a version that is a number": ({"version": 1}, "no usable version: 1"),
    "no role": ({"roles": ()}, "names no role"),
    "an unknown role": ({"roles": {"node", "king"}}, "unknown roles: 'king'"),
    "a role that is no text": ({"roles": [["node"]]}, "unknown roles"),
    "roles that are one text": ({"roles": "node"}, "no set of roles"),
    "roles that are nothing": ({"roles": None}, "no set of roles"),
    "a function that is not async": ({"verify": print}, "no `async def`"),
    "a reason that is a text": ({"reasons": ["bad-tag"]}, "is no Reason"),
    "reasons that are one text": ({"reasons": "bad"}, "is no Reason"),
    "a reason's name in capitals": (
        {"reasons": [Reason("Bad", "ACME0001", "low", "Bad.")]},
        "kebab-case",
    ),
    "a reason twice": (
        {"reasons": [BAD_TAG, Reason("bad-tag", "ACME0002", "low", "Bad.")]},
        "declared twice",
    ),
    "a code twice": (
        {"reasons": [BAD_TAG, Reason("bad-vendor", "ACME0001", "low", "Bad.")]},
        "code ACME0001 is declared twice",
    ),
    "a standard reason": (
        {"reasons": [Reason("expired", "ACME0002", "low", "Old.")]},
        "every attestor has it already",
    ),
    "a code of ours": (
        {"reasons": [Reason("old", "WJ0999", "low", "Old.")]},
        "WJ0999 is reserved",
    ),
    "a code that is none": (
        {"reasons": [Reason("old", "acme-1", "low", "Old.")]},
        "'acme-1' is no code",
    ),
    "an unknown severity": (
        {"reasons": [Reason("old", "ACME0003", "fatal", "Old.")]},  # type: ignore[arg-type]
        "not low, medium or high",
    ),
    "no sentence": ({"reasons": [Reason("old", "ACME0003", "low", "")]}, "needs a sentence"),
}


@pytest.mark.parametrize(("changes", "said"), WRONG.values(), ids=WRONG)
def test_each_fault_is_named(changes: dict[str, Any], said: str) -> None:
    """An author reads what to mend; a worker never starts with it."""
    with pytest.raises(ConfigRefused) as caught:
        asset(**changes)
    assert [problem for problem in caught.value.problems if said in problem]


def test_all_faults_are_told_at_once() -> None:
    """Or an author mends one, starts, and meets the next."""
    with pytest.raises(ConfigRefused) as caught:
        asset(version="x", roles={"king"}, reasons=[Reason("Bad", "bad", "low", "")])
    assert len(caught.value.problems) == 5


def test_two_attestors_of_one_id_are_refused() -> None:
    """Which of them judged would depend on the order of a list."""
    with pytest.raises(ConfigRefused, match="two attestors have the id 'acme-asset'"):
        Catalog([asset(), Asset()])


def test_one_code_with_two_meanings_is_refused() -> None:
    """A security team's rules go by code. Two attestors may share a reason, but not a code for two."""
    other = Reason("bad-vendor", "ACME0001", "high", "No such vendor.")
    with pytest.raises(
        ConfigRefused, match=r"'acme-asset' and 'other' both have the code ACME0001"
    ):
        Catalog([asset(), asset(id="other", reasons=[other])])
    shared = Catalog([asset(), asset(id="other")])
    assert shared.reason(AttestorId("other"), "bad-tag") == BAD_TAG


def test_what_is_no_attestor_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """A host may hand over a mixed list; a class that nobody instantiated verifies nothing."""
    del caplog
    assert Catalog([None, "text", Asset, verify, Asset()]).ids() == ["acme-asset"]
