"""A reader of CEF that follows the specification alone."""

import re

_HEADS = 7


def read_cef(line: str) -> tuple[list[str], dict[str, str]]:
    """Return the header's fields and the extension of a CEF line.

    Raises:
        ValueError: it is none.
    """
    heads: list[str] = []
    at = 0
    for _ in range(_HEADS):
        found = re.compile(r"(?:\\.|[^|\\])*\|").match(line, at)
        if found is None:
            message = "not seven fields"
            raise ValueError(message)
        heads.append(re.sub(r"\\(.)", r"\1", found[0][:-1]))
        at = found.end()
    if not heads[0].startswith("CEF:") or "\n" in line or "\r" in line:
        message = "not one line of CEF"
        raise ValueError(message)
    extension: dict[str, str] = {}
    for key, value in re.findall(r"(\w+)=((?:\\.|[^\\=])*?)(?= \w+=|$)", line[at:]):
        extension[key] = re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), value)
    return heads, extension
