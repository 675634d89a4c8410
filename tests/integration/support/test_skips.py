"""A skip that is not listed fails the session."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.folders import ROOT

_SKIPPED = "import pytest\n@pytest.mark.skip(reason='lazy')\ndef test_lazy(): pass\n"
_MODULE = "import pytest\npytest.skip('lazy', allow_module_level=True)\n"
_EXPECTED = "import pytest\n@pytest.mark.xfail\ndef test_wrong(): assert False\n"
_EXPECTED_PASSES = "import pytest\n@pytest.mark.xfail\ndef test_right(): pass\n"
_FINE = "def test_fine(): pass\n"


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.skips", str(folder)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.parametrize("text", [_SKIPPED, _MODULE, _EXPECTED, _EXPECTED_PASSES])
def test_a_session_with_an_unlisted_skip_or_an_expected_failure_fails(
    tmp_path: Path, text: str
) -> None:
    done = _run(tmp_path, text)
    assert done.returncode == 1
    assert "NOT ALLOWED" in done.stdout


def test_a_session_without_skips_passes(tmp_path: Path) -> None:
    assert _run(tmp_path, _FINE).returncode == 0
