"""What a run of `make mutants` tries: enough to matter, nothing that cannot matter."""

import ast

from tests.mutants.changes import changes_of

SOURCE = '''
"""A verifier."""


def verify(token: str | None, context: "Context") -> bool | None:
    """Admit the holder."""
    context.step(1, "there is a token")
    if token is None or token.uses_left <= 0:
        raise refuse("no-token", tried=token)
    context.spend(token.id)
    return f"{token}" == "good"
'''


def _tried() -> dict[int, set[str]]:
    tried: dict[int, set[str]] = {}
    for change in changes_of(SOURCE):
        tried.setdefault(change.line, set()).add(change.name)
    return tried


def test_every_line_that_decides_is_changed() -> None:
    """A spend that is left out, a refusal that is not raised, a bound that is one off: each is tried."""
    tried = _tried()
    assert {"ReplaceOrWithAnd", "ReplaceComparisonOperator_LtE_Lt", "AddNot"} <= tried[8]
    assert {"RemoveStatement", "RemoveArgument_tried", "ChangeString"} <= tried[9]
    assert tried[10] == {"RemoveStatement"}
    assert {"ReplaceComparisonOperator_Eq_NotEq", "ChangeString"} <= tried[11]


def test_what_decides_nothing_is_left_alone() -> None:
    """Docstrings, annotations and what is told to who explains would survive each time and hide the rest."""
    assert _tried().keys() == {8, 9, 10, 11}


def test_changes_are_python_and_differ_from_what_stands() -> None:
    """What cannot be compiled, or is the same, would count as noticed, or as survived, and be neither."""
    stands = ast.dump(ast.parse(SOURCE))
    changed = [ast.dump(ast.parse(change.source)) for change in changes_of(SOURCE)]
    assert stands not in changed
    assert len(changed) > 15
