"""The reference of the attestors' seam, made of its docstrings: what `watchword.handlers.attestor` and `prover` say."""

import ast
import inspect
import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any, get_args

from watchword.handlers import attestor, prover
from watchword.handlers.field_docs import class_body, tree, with_strings

_HEAD = """\
# The attestors' seam

Made of docstrings by `tools/write_references.py`; do not edit. The [guide](../guides/write-an-attestor.md) goes from nothing to a joined machine.
"""

_PROVER = ("NoEvidence", "Prover", "ProverSettings", "MakeProver", "read_source", "text_setting")
_SECTION = re.compile(r"^(Args|Raises|Returns|Yields):$", re.MULTILINE)


def attestor_reference() -> str:
    """Return the page, Markdown."""
    lines = [_HEAD]
    lines += _module(attestor, attestor.__all__)
    lines += _module(prover, _PROVER)
    return "\n".join(lines).rstrip() + "\n"


def _module(module: ModuleType, names: Iterable[str]) -> list[str]:
    lines = [f"## `{module.__name__}`", "", _text(module), ""]
    for name in sorted(names, key=str.lower):
        lines += _member(module, name)
    return lines


def _member(module: ModuleType, name: str) -> list[str]:
    member: Any = getattr(module, name)
    if inspect.isclass(member):
        lines = [f"### `{name}`", "", _text(member), ""]
        written = class_body(member)
        fields = [
            f"* `{one.target.id}: {ast.unparse(one.annotation)}`{_colon(said)}"
            for one, said in with_strings(written)
            if isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and not one.target.id.startswith("_")
        ]
        lines += [*fields, ""] if fields else []
        for one in written:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and _is_shown(one):
                lines += [f"#### `{_signature(one)}`", "", _markdown(ast.get_docstring(one)), ""]
        return lines
    if inspect.isfunction(member):
        (function,) = tree(member).body
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            message = f"{name} is written in a way that this page does not know"
            raise TypeError(message)
        return [f"### `{_signature(function)}`", "", _text(member), ""]
    constants = {
        target.id: said
        for one, said in with_strings(tree(module).body)
        if isinstance(one, ast.AnnAssign | ast.Assign)
        for target in ([one.target] if isinstance(one, ast.AnnAssign) else one.targets)
        if isinstance(target, ast.Name)
    }
    said = constants.get(name) or _made(member)
    return [f"### `{name}`", "", said, ""]


def _made(member: Any) -> str:  # noqa: ANN401 - a type that is no class
    """Return what a name stands for that has no docstring."""
    if (base := getattr(member, "__supertype__", None)) is not None:
        return f"A `{base.__name__}`, told apart from others by type checkers alone."
    parts = [part.__name__ if inspect.isclass(part) else repr(part) for part in get_args(member)]
    return f"`{' | '.join(parts)}`" if parts else ""


def _is_shown(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    hidden = function.name.startswith("_") and function.name != "__call__"
    return not hidden and ast.get_docstring(function) is not None


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    name = function.name
    if any(isinstance(one, ast.Name) and one.id == "property" for one in function.decorator_list):
        return name
    arguments = function.args
    arguments.args = [one for one in arguments.args if one.arg not in ("self", "cls")]
    returns = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    prefix = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    # A type that is quoted is so for the interpreter's sake.
    return f"{prefix}{name}({ast.unparse(arguments)}){returns}".replace("'", "")


def _colon(said: str) -> str:
    return f": {said}" if said else ""


def _text(member: object) -> str:
    return _markdown(inspect.getdoc(member))


def _markdown(said: str | None) -> str:
    """Return a docstring as Markdown: its sections of arguments and errors are lists."""
    parts = _SECTION.split(said or "")
    text = [parts[0].strip()]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        text += ["", f"**{title}**", "", *_items(body)]
    return "\n".join(text)


def _items(body: str) -> list[str]:
    items: list[str] = []
    for line in inspect.cleandoc(body).splitlines():
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        elif line.strip():
            name, colon, rest = line.partition(":")
            items.append(f"* `{name}`:{rest}" if colon else f"* {line}")
    return items
