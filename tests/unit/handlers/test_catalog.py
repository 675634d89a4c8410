"""What becomes of the reasons that a stranger's attestor declares, and of those that it does not."""

from typing import Any

import pytest

from tests.support.attestors.scripted import Scripted
from watchword.handlers.catalog import Catalog
from watchword.schemas.ids import AttestorId
from watchword.schemas.reasons import Reason

STRANGER = AttestorId("acme-asset")


def catalog(*reasons: object) -> Catalog:
    attestor: Any = Scripted(STRANGER)
    attestor.reasons = tuple(reasons)
    return Catalog([attestor])


def test_a_declared_reason_keeps_its_own_code() -> None:
    """Its author's runbook is written on it."""
    own = Reason("no-asset", "AC0001", "high", "No such asset.", remedy="Ask the asset team.")
    assert catalog(own).reason(STRANGER, "no-asset") is own
    assert own.what_to_do == "Ask the asset team."


@pytest.mark.parametrize(
    "name", ["made-up", "x" * 10_240, "n\u00f6\x00\u202e", "", 7, None, ["bad"]], ids=repr
)
def test_what_was_not_declared_is_other(name: Any) -> None:  # noqa: ANN401 - authors raise anything
    """Nobody can make unbounded series, buckets or labels, whatever is raised."""
    found = catalog(Reason("no-asset", "AC0001", "high", "No such asset.")).reason(STRANGER, name)
    assert (found.name, found.code) == ("other", "WJ0203")
