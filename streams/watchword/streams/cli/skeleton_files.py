"""The files of a new attestor's package, as `watchword attestors new` writes them."""

import keyword
import re
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from watchword.handlers.errors import BadArgument, Conflict
from watchword.schemas.ids import RESERVED_ATTESTOR_IDS
from watchword.schemas.requests import ATTESTOR_ID

_PLACES: Mapping[str, str] = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "init.py": "src/{{package}}/__init__.py",
    "py.typed": "src/{{package}}/py.typed",
    "verifier.py": "src/{{package}}/verifier.py",
    "prover.py": "src/{{package}}/prover.py",
    "make_key.py": "src/{{package}}/make_key.py",
    "conftest.py": "tests/conftest.py",
    "test.py": "tests/test_{{package}}.py",
}
"""Templates, and where each goes."""

_STARTS_WITH_LETTER = re.compile(r"[a-z]")
_CODE_LETTERS = 6


def write_skeleton(name: str, parent: Path, taken: frozenset[str]) -> Path:
    """Write a package whose tests pass into a new folder `parent/name`, and return the folder.

    Raises:
        BadArgument: the name can be no attestor's id and package, or is one of ours.
        Conflict: there is such a folder.
        OSError: it cannot be written.
    """
    if not ATTESTOR_ID.fullmatch(name) or not _STARTS_WITH_LETTER.match(name):
        message = f"{name!r:.80}: a DNS label that begins with a letter, such as acme-asset"
        raise BadArgument(message)
    if name in RESERVED_ATTESTOR_IDS | taken:
        message = f"{name} is an id of Watchword's own"
        raise BadArgument(message)
    words = _words(name)
    package = words["package"]
    if keyword.iskeyword(package) or package in sys.stdlib_module_names | {"watchword", "tests"}:
        message = f"{name}: a package {package} would stand in the way of another"
        raise BadArgument(message)
    folder = parent / name
    templates = resources.files("watchword.streams.cli") / "skeleton"
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        message = f"{folder} is there already"
        raise Conflict(message) from None
    for template, place in _PLACES.items():
        text = (templates / f"{template}.tmpl").read_text(encoding="utf-8")
        file = folder / _filled(place, words)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_filled(text, words), encoding="utf-8")
    return folder


def _words(name: str) -> Mapping[str, str]:
    letters = "".join(character for character in name.upper() if character.isalpha())
    code = letters[:_CODE_LETTERS]
    return {
        "name": name,
        "package": name.replace("-", "_"),
        "Class": "".join(part.title() for part in name.split("-")),
        # WJ is ours, and a code has two letters at least.
        "CODE": code if len(code) > 1 and code != "WJ" else f"X{code}",
        "VARIABLE": f"{name.replace('-', '_').upper()}_KEY_FILE",
    }


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace("{{" + word + "}}", value)
    return text
