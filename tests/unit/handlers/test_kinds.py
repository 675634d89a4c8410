"""Which kinds there are, and which a node takes."""

import pytest

from watchword.handlers.kinds import BUILT_IN, kinds_problem, known_kind, permits, registry


@pytest.mark.parametrize(
    ("allowed", "kind", "is_allowed"),
    [
        (None, "disk.wipe", True),
        ((), "disk.wipe", False),
        (("disk.wipe",), "disk.wipe", True),
        (("wipe",), "disk.wipe", False),
        (("disk.wipe",), "wipe", False),
        (("disk.*",), "disk.wipe", True),
        (("disk.*",), "disk", False),
        (("disk.*",), "diskette.wipe", False),
        (("dis*",), "disk.wipe", False),
        (("*",), "disk.wipe", False),
        (("disk.wip",), "disk.wipe", False),
        (("logs.*", "disk.wipe"), "disk.wipe", True),
    ],
)
def test_kinds_are_matched_exactly(
    allowed: tuple[str, ...] | None, kind: str, *, is_allowed: bool
) -> None:
    """`wipe` does not allow `disk.wipe`: a near miss must not take a machine's disk."""
    assert permits(allowed, kind) is is_allowed


def test_own_kinds_of_a_deployment_are_kinds_like_the_others() -> None:
    registered = registry(("backup.run",))
    assert registered == BUILT_IN | {"backup.run"}
    assert known_kind("backup.*", registered)
    assert not known_kind("backup.*")
    assert kinds_problem(("backup.run", "disk.*"), registered) is None
    assert "backup.ru'" in (kinds_problem(("backup.ru",), registered) or "")
