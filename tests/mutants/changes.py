"""What is changed in a module: one place at a time.

cosmic-ray brings the usual changes (comparisons, `and` and `or`, numbers, exceptions, loops). What a verifier can lose besides is
ours: a statement, an argument that has a default, and a letter of a string.
"""

import ast
import warnings
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from types import CodeType

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

Place = tuple[int, int]
"""A line, from 1, and a column."""

Span = tuple[Place, Place]


@dataclass(frozen=True, slots=True)
class Change:
    """One changed module: what was done, to which line (from 1), and the whole source that results."""

    name: str
    line: int
    source: str


def changes_of(source: str, lines: Container[int] | None = None) -> list[Change]:
    """Return every change that still is Python, in the order of lines, or those of some lines; raises `SyntaxError`."""
    tree = ast.parse(source)
    silent = tuple(_silent(tree))

    def is_meant(start: Place) -> bool:
        return (lines is None or start[0] in lines) and not _within(start, silent)

    found = (*_usual(source, is_meant), *_own(source, tree, is_meant))
    return sorted(filter(_compiles, found), key=lambda change: change.line)


def compiled(source: str, path: str) -> CodeType:
    """Compile a change without a word about `is` with a literal; raises `SyntaxError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(source, path, "exec")


def _compiles(change: Change) -> bool:
    try:
        compiled(change.source, change.name)
    except SyntaxError:
        return False
    return True


def _usual(source: str, is_meant: Callable[[Place], bool]) -> Iterator[Change]:
    nodes = tuple(ast_nodes(get_ast(source)))
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():  # needs to be told the variables
            continue
        starts = [start for node in nodes for start, _ in kind().mutation_positions(node)]
        for occurrence, start in enumerate(starts):
            if is_meant(start):
                changed = mutate_code(source, kind(), occurrence)
                if changed is not None and changed != source:
                    yield Change(name.partition("/")[2], start[0], changed)


def _own(source: str, tree: ast.Module, is_meant: Callable[[Place], bool]) -> Iterator[Change]:
    lines = source.splitlines(keepends=True)
    for node in ast.walk(tree):
        for name, (start, end), text in _replacements(node):
            if is_meant(start):
                yield Change(name, start[0], _replaced(lines, start, end, text))


def _replacements(node: ast.AST) -> Iterator[tuple[str, Span, str]]:
    match node:
        case ast.Expr() | ast.Raise() | ast.AugAssign():
            yield "RemoveStatement", _span(node), "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "RemoveStatement", _span(node), "pass"
        case ast.Call(keywords=keywords):
            for one in keywords:
                if one.arg is not None:
                    yield f"RemoveArgument_{one.arg}", _span(one), ""
        case ast.Constant(value=str() | bytes() as text):
            more = text + ("X" if isinstance(text, str) else b"X")  # type: ignore[operator]
            yield "ChangeString", _span(node), repr(more)
        case _:
            return


def _replaced(lines: list[str], start: Place, end: Place, text: str) -> str:
    """Return the source with a span replaced; columns are UTF-8 bytes, as `ast` counts them."""
    head, tail = lines[start[0] - 1].encode()[: start[1]], lines[end[0] - 1].encode()[end[1] :]
    before = "".join(lines[: start[0] - 1]) + head.decode()
    after = tail.decode() + "".join(lines[end[0] :])
    if not text:
        after = after.lstrip()
        after = after.removeprefix(",")
    return before + text + after


def _silent(tree: ast.Module) -> Iterator[Span]:
    """Yield where a change means nothing: docstrings, annotations, f-strings' parts, and what is only told."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                yield _span(node)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="step" | "found"))):
                # These tell who explains a verdict what was looked at, and decide nothing.
                yield _span(node)
            case ast.JoinedStr():
                yield _span(node)
            case ast.arg(annotation=ast.expr() as annotation):
                yield _span(annotation)
            case ast.AnnAssign(annotation=annotation):
                yield _span(annotation)
            case ast.FunctionDef(returns=ast.expr() as annotation):
                yield _span(annotation)
            case ast.AsyncFunctionDef(returns=ast.expr() as annotation):
                yield _span(annotation)
            case _:
                continue


def _span(node: ast.expr | ast.stmt | ast.keyword) -> Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _within(start: Place, spans: tuple[Span, ...]) -> bool:
    return any(begin <= start < end for begin, end in spans)
