"""What is shipped with us: locked by hashes, listed with its licences, and never taken for checked when it was not."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import ROOT

LOCKS = (
    "requirements.lock",
    "requirements-server.lock",
    "requirements-tpm.lock",
    "requirements-tpm-build.lock",
)
FREE = re.compile(
    r"MIT|BSD|Apache|Python Software Foundation|PSF|Mozilla Public License|MPL|ISC|Unlicense|0BSD|CC0|Repoze Public License"
)
NOT_TAKEN = re.compile(
    r"\bA?GPL|General Public License(?! v2 or later \(LGPL)|SSPL|Business Source", re.IGNORECASE
)

AUDIT: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "audit.py"))
LICENCES: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "write_licences.py"))

_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)((?:.*\\\n)+.*)", re.MULTILINE)


def entries(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return name → version and hashes of a lock."""
    text = (ROOT / lock).read_text()
    return {
        name: (version, frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})", rest)))
        for name, version, rest in _ENTRY.findall(text)
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_hash_and_no_address(lock: str) -> None:
    """A package without one could be anybody's tomorrow."""
    text = (ROOT / lock).read_text()
    named = re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)
    assert set(named) == set(entries(lock))
    assert all(hashes for _, hashes in entries(lock).values())
    assert "://" not in text


def test_what_is_shipped_is_what_was_tested() -> None:
    """An image with another version of a library is another program."""
    tested, shipped = entries("requirements.lock"), entries("requirements-server.lock")
    assert {name: tested.get(name) for name in shipped} == shipped


def test_the_list_of_licences_is_of_what_is_shipped() -> None:
    """Whoever passes us on has to pass on their terms."""
    page = (ROOT / "docs" / "reference" / "licences.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (\S+) \| \S+ \| (.*?) ?\|$", page, re.MULTILINE))
    versions = dict(re.findall(r"^\| (\S+) \| (\S+) \|", page, re.MULTILINE))
    versions.pop("package", None)
    versions.pop("---", None)
    shipped = entries("requirements-server.lock")
    assert versions == {name: version for name, (version, _) in shipped.items()}
    text = (ROOT / "requirements-server.lock").read_text()
    for name in shipped:
        licence = rows[name].strip()
        for_another_platform = re.search(rf"^{re.escape(name)}==\S+ ;", text, re.MULTILINE)
        assert FREE.search(licence) or (not licence and for_another_platform), f"{name}: {licence}"
        assert not NOT_TAKEN.search(licence), f"{name}: {licence}"


def test_the_list_of_parts_names_every_package_with_its_hash(tmp_path: Path) -> None:
    """An SBOM that forgets one is asked about it when it is too late."""
    output = tmp_path / "sbom.json"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", str(ROOT / "requirements-server.lock"),
         "--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application", "--output-reproducible",
         "--output-format", "JSON", "--output-file", str(output)],
        check=True, capture_output=True,
    )  # fmt: skip
    bom = json.loads(output.read_text())
    assert bom["metadata"]["component"]["name"] == "watchword"
    listed = {part["name"]: part for part in bom["components"]}
    for name, (version, hashes) in entries("requirements-server.lock").items():
        assert listed[name]["version"] == version
        assert hashes <= set(re.findall(r"sha256:[0-9a-f]{64}", json.dumps(listed[name]))) or {
            one.removeprefix("sha256:") for one in hashes
        } <= set(re.findall(r"[0-9a-f]{64}", json.dumps(listed[name])))


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (None, 75),
        ({"dependencies": []}, 75),
        ({"dependencies": [{"name": "a", "version": "1", "vulns": []}]}, 75),
        ({"dependencies": [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "?"}]}, 75),
        ({"dependencies": [{"name": "A", "version": "1", "vulns": []}, {"name": "b", "version": "1", "vulns": []}]}, 0),
        (
            {
                "dependencies": [
                    {"name": "a", "version": "1", "vulns": [{"id": "GHSA-1", "fix_versions": ["2"]}]},
                    {"name": "b", "skip_reason": "?"},
                ]
            },
            1,
        ),
    ],
)  # fmt: skip
def test_what_could_not_be_asked_about_is_not_checked(
    report: dict[str, Any] | None, status: int
) -> None:
    """Advisories that could not be had are no good news."""
    found, said = AUDIT["verdict"](report, ["a", "b"])
    assert found == status
    assert said
