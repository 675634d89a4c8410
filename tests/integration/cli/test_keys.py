"""Keys are replaced at the command line, with somebody's name beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Command

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def keys(watchword: Command, environment: dict[str, str]) -> Path:
    """Make the keys of a deployment."""
    watchword("keys", "init", "--trust-domain", "fleet.example")
    return Path(environment["WATCHWORD_KEYS__DIRECTORY"])


def listed(watchword: Command) -> dict[str, dict[str, list[str]]]:
    """Return the names of the keys by kind and state."""
    found: dict[str, dict[str, list[str]]] = {}
    items: list[dict[str, Any]] = json.loads(watchword("keys", "list", "--json").stdout)["items"]
    for row in items:
        found.setdefault(row["kind"], {}).setdefault(row["state"], []).append(row["kid"])
    return found


@pytest.mark.parametrize("kind", ["signing", "decryption", "ca"])
def test_a_key_is_replaced_in_three_steps(watchword: Command, kind: str) -> None:
    """What the guide says, literally."""
    (first,) = listed(watchword)[kind]["active"]
    watchword("keys", "activate", kind, code=4)
    watchword("keys", "retire", kind, first, code=4)
    watchword("keys", "prepare", kind, "--why", "yearly")
    watchword("keys", "prepare", kind, code=4)
    (second,) = listed(watchword)[kind]["prepared"]
    watchword("keys", "activate", kind, "--why", "yearly")

    assert listed(watchword)[kind] == {"active": [second], "retired": [first]}
    watchword("keys", "retire", kind, first, code=4)
    watchword("keys", "retire", kind, first, "--compromised", "--why", "ticket 4711")
    assert listed(watchword)[kind] == {"active": [second]}
    watchword("keys", "retire", kind, first, code=3)
    assert json.loads(watchword("rebuild", "--check", "--json").stdout)["items"] == []


def test_nothing_is_shown_of_a_key_but_its_name(watchword: Command, keys: Path) -> None:
    """Terminals are recorded."""
    watchword("keys", "prepare", "signing")
    said = watchword("keys", "list", "--json").stdout + watchword("keys", "show").stdout

    for file in keys.rglob("*"):
        if file.is_file() and file.stat().st_mode & 0o777 == 0o600 and file.name != ".lock":
            for line in file.read_text().splitlines():
                assert "-----" in line or line not in said


def test_the_doctor_says_how_old_keys_are_and_what_comes_next(watchword: Command) -> None:
    """A key that ends on a Sunday is an outage that was announced for 90 days."""
    watchword("keys", "prepare", "signing")
    items = json.loads(watchword("doctor", "--json", code=1).stdout)["items"]
    said = {item["check"]: item["text"] for item in items}

    (prepared,) = listed(watchword)["signing"]["prepared"]
    assert f"next {prepared}, prepared for 0 days" in said["signing key"]
    assert "ends " in said["decryption key"]
    assert "in use" in said["ca key"]
    assert said["key holders"].startswith("every worker")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["keys", "prepare", "everything"], 2),
        (["keys", "prepare", "signing", "--in-hsm", "x"], 2),
        (["keys", "activate", "signing", "--overlap", "soon"], 2),
        (["keys", "retire", "signing"], 2),
        (["keys", "retire", "signing", "../../etc/passwd"], 3),
    ],
)
def test_what_makes_no_sense_is_said_so(
    watchword: Command, keys: Path, arguments: list[str], code: int
) -> None:
    before = {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()}
    watchword(*arguments, code=code)

    after = {p: p.read_bytes() for p in keys.rglob("*") if p.is_file() and p.name != ".lock"}
    assert after == before


def test_a_ca_in_a_module_needs_one(watchword: Command, keys: Path) -> None:
    said = watchword("keys", "prepare", "ca", "--in-hsm", "x", code=2).stderr

    assert "pkcs11_module" in said
    assert not (keys / "ca.json").exists()
