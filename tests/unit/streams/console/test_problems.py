"""What an operator is told when something that they gave does not fit."""

import pytest
from pydantic import ValidationError

from watchword.streams.console.api.refusals import Which
from watchword.streams.console.problems import told


def test_a_value_that_does_not_fit_is_told_in_words() -> None:
    """A pattern is for machines: whoever pasted half a digest wants to hear how long one is."""
    with pytest.raises(ValidationError) as raised:
        Which.model_validate({"csr": "abcd"})

    said = told(raised.value)

    assert said.detail == "csr: has to be 64 hexadecimal digits, 0-9 and a-f"
