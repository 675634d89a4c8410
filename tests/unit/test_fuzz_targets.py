"""What is fuzzed is good to begin with, is on the list, and holds for each of its seeds."""

import pytest

from tests.fuzz.__main__ import NAMES
from tests.fuzz.decoders import DECODERS
from tests.fuzz.seeds import seeds_of
from tests.fuzz.targets import TARGETS
from tests.fuzz.tpm import TPM_TARGETS


def test_every_target_is_on_the_list() -> None:
    """A target that `make fuzz` does not know is never run."""
    assert set(NAMES) == {*TARGETS, *TPM_TARGETS, *DECODERS}


@pytest.mark.parametrize("name", DECODERS)
def test_good_bytes_are_taken_and_near_misses_end_in_the_one_error(name: str) -> None:
    """A decoder that takes nothing has nothing to be fuzzed, and one that raises what it may not ends its process."""
    decoding = DECODERS[name]()
    assert not isinstance(decoding.hold(decoding.good), Exception)
    refused = [
        isinstance(decoding.hold(seed), decoding.refuses)
        for seed in (*seeds_of(decoding.good), *decoding.seeds)
    ]
    assert any(refused)


@pytest.mark.parametrize("name", [*TARGETS, *TPM_TARGETS])
def test_seeds_of_evidence_break_no_invariant(name: str) -> None:
    """Near misses of evidence are the first that anybody would try."""
    target = {**TARGETS, **TPM_TARGETS}[name]()
    for seed in seeds_of(target.good):
        target.hold(seed)
