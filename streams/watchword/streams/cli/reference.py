"""The reference of the command line, from its commands: `docs/reference/cli.md`."""

import re

from watchword.streams.cli.main import make_app

_HEAD = """\
# The command line

<!-- Written by tools/write_references.py; edit the code. -->

Results stand on standard output, in the form of `--output table|json|jsonl`; messages stand on standard
error. JSON has `schemaVersion` on top, names in camelCase that stay, times as RFC 3339 and bytes in
hexadecimal. No secret is ever taken from the arguments.

| exit code | says |
|---|---|
| 0 | done |
| 1 | failed, or a check found something |
| 2 | wrong usage or configuration |
| 3 | there is no such thing |
| 4 | conflict: somebody else was first, or it is in use |
| 5 | denied |
| 69 | something that is needed is away |
| 75 | try again |
| 130, 143 | ended by a second Ctrl-C or SIGTERM |
"""


def cli_reference() -> str:
    """Return the page as Markdown."""
    pages = make_app().generate_docs(output_format="markdown", usage_name="watchword")
    # The first heading is ours.
    body = pages.partition("\n")[2]
    trimmed = re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE).strip()
    return f"{_HEAD}\n{trimmed}\n"
