"""The three source roots are one namespace."""

import pytest

from tests.support.folders import ROOT


@pytest.mark.parametrize("root", ["schemas", "handlers", "streams"])
def test_a_source_root_has_no_init_file_that_would_hide_the_other_two(root: str) -> None:
    assert (ROOT / root / "watchword").is_dir()
    assert not (ROOT / root / "watchword" / "__init__.py").exists()
