"""Test vectors that live beside the checkout, each with its source in their own manifest."""

from pathlib import Path

import pytest

from tests.support.folders import ROOT

VECTORS = ROOT.parent / "shared" / "vectors"


def vector(name: str) -> Path:
    """Return the path of a vector; skip the test where the vectors are not."""
    if not VECTORS.is_dir():
        pytest.skip("the shared vectors are not here")
    return VECTORS / name
