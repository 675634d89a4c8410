"""What stands beneath fields and constants in the source: their documentation, which Python does not keep.

It is read from the source whenever a page is made of it, and not whenever a class is.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any


def field_docs(owner: type) -> dict[str, str]:
    """Return the text beneath each field of a class, its bases' included, by the field's name."""
    return {
        one.target.id: said
        for base in reversed(owner.__mro__)
        for one, said in with_strings(class_body(base))
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }


def tree(owner: Any) -> ast.Module:  # noqa: ANN401 - a module, class or function
    """Return the source of something, parsed.

    Raises:
        OSError: it has none that can be read.
    """
    return ast.parse(textwrap.dedent(inspect.getsource(owner)))


def class_body(owner: type) -> list[ast.stmt]:
    """Return what stands in a class as it is written; nothing for one that a call has made."""
    try:
        first = tree(owner).body[0]
    except (OSError, TypeError):
        return []
    return first.body if isinstance(first, ast.ClassDef) else []


def with_strings(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield statements with the string beneath each, on one line."""
    for one, after in zip_longest(body, body[1:]):
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield one, inspect.cleandoc(text).replace("\n", " ")
            case _:
                yield one, ""
