"""What the configuration lets an attestor return."""

from dataclasses import replace
from typing import Any

import pytest

from watchword.handlers.attestor import Admission
from watchword.handlers.join.policy import JoinPolicy, Limits
from watchword.handlers.kinds import BUILT_IN, known_kind
from watchword.schemas.ids import AttestorId, TenantId

ID = AttestorId("acme-asset")
ADMISSION = Admission(
    tenant=TenantId("acme"), role="node", pool="web", site="ber1", allowed_kinds=("disk.wipe",)
)


def allows(limits: Limits, **changes: Any) -> bool:  # noqa: ANN401 - any field
    return JoinPolicy({ID: limits}).allows(ID, replace(ADMISSION, **changes))


def test_attestor_without_a_section_may_return_nothing() -> None:
    """Half a configuration must not be a permission."""
    assert not JoinPolicy().allows(ID, ADMISSION)
    assert not JoinPolicy({AttestorId("another"): Limits()}).allows(ID, ADMISSION)


@pytest.mark.parametrize(
    ("limits", "change"),
    [
        (Limits(tenants=frozenset(("acme",))), {"tenant": "globex"}),
        (Limits(pools=frozenset(("web",))), {"pool": "db"}),
        (Limits(sites=frozenset(("ber1",))), {"site": "ham1"}),
        (Limits(roles=frozenset(("node",))), {"role": "site"}),
        (Limits(kinds=frozenset(("disk.wipe",))), {"allowed_kinds": ("boot.kexec",)}),
        (Limits(kinds=frozenset(("disk.wipe",))), {"allowed_kinds": ("disk.*",)}),
    ],
    ids=lambda of: str(of) if isinstance(of, dict) else "limits",
)
def test_limit_lets_in_what_it_names_and_nothing_else(
    limits: Limits, change: dict[str, Any]
) -> None:
    assert allows(limits)
    assert not allows(limits, **change)


@pytest.mark.parametrize("what", ["tenants", "pools", "sites", "kinds", "roles"])
def test_empty_limit_lets_nothing_in(what: str) -> None:
    """A list that was emptied must not mean that there is no list."""
    nothing: dict[str, Any] = {what: frozenset[Any]()}
    assert not allows(replace(Limits(), **nothing))


def test_admission_without_a_site_is_within_every_limit_on_sites() -> None:
    assert allows(Limits(sites=frozenset(("ber1",))), site=None)


def test_unrestricted_kinds_have_to_be_allowed_in_so_many_words() -> None:
    """None is every command there is; an empty list is none at all."""
    assert not allows(Limits(), allowed_kinds=None)
    assert allows(Limits(unrestricted_kinds=True), allowed_kinds=None)
    assert allows(Limits(), allowed_kinds=())


@pytest.mark.parametrize("kind", [*sorted(BUILT_IN), "diag.*", "disk.*", "boot.*"])
def test_kind_is_registered_or_the_prefix_of_one(kind: str) -> None:
    assert known_kind(kind)
    assert allows(Limits(), allowed_kinds=(kind,))


@pytest.mark.parametrize(
    "kind",
    ["wipe", "disk", "disk.", "disk.wip", "disk.wipe.now", "DISK.WIPE", "*", ".*", "d*", "di.*", "unknown.*", "disk.wipe.*", "disk..*", " disk.*", "disk.*\n", ""],
)  # fmt: skip
def test_what_matches_no_registered_kind_is_refused(kind: str) -> None:
    """`wipe` must not become `disk.wipe`, and a bare star not everything."""
    assert not known_kind(kind)
    assert not allows(Limits(), allowed_kinds=("disk.wipe", kind))
