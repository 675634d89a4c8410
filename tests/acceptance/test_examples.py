"""The examples are what an author would ship: their wheels beside ours, their own tests, strict types."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import asyncpg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.support.dev_runs import developing
from tests.support.folders import ROOT, server_folder
from tests.support.installed import EXAMPLES, Installed, clean_environment, run

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(900)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_passes_its_own_tests_on_our_wheel(
    example: str, installed: Installed, tmp_path: Path
) -> None:
    """With a folder `handlers` of its own where it runs, and nothing of our checkout in sight."""
    folder = tmp_path / example
    shutil.copytree(ROOT / "examples" / example, folder)
    said = run(
        [str(installed.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], folder
    )
    assert " passed" in said
    assert "failed" not in said
    assert "skipped" not in said


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_strictly_typed_against_our_wheel(
    example: str, installed: Installed, tmp_path: Path
) -> None:
    """An author's editor knows our types, or guesses."""
    folder = tmp_path / example
    shutil.copytree(ROOT / "examples" / example, folder)
    said = run([str(installed.python), "-m", "mypy", "--strict", "handlers", "tests"], folder)
    assert "Success" in said


def test_worker_finds_the_examples(installed: Installed, tmp_path: Path) -> None:
    """What an operator sees before they rely on it."""
    said = run(
        [
            str(installed.python),
            "-m",
            "watchword.streams.cli",
            "attestors",
            "list",
            "--output",
            "jsonl",
        ],
        tmp_path,
    )
    for name in EXAMPLES:
        (line,) = [one for one in said.splitlines() if name.replace("_", "-") in one]
        assert '"state": "available"' in line
        assert f'"distribution": "{name.replace("_", "-")}"' in line


def test_migrate_makes_their_tables(
    installed: Installed, empty_database: str, tmp_path: Path
) -> None:
    """An operator enables a package and migrates as ever; nothing else is to be remembered."""
    names = [name.replace("_", "-") for name in EXAMPLES]
    config = tmp_path / "watchword.toml"
    config.write_text(f"[attestors]\nenabled = {json.dumps(names)}\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    environment |= {"DATABASE_URL": empty_database, "WATCHWORD_CONFIG": str(config)}

    def watchword(*arguments: str) -> list[dict[str, object]]:
        done = subprocess.run(
            [str(installed.commands / "watchword"), *arguments, "--output", "jsonl"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    done = [(row["attestor"], row["name"]) for row in watchword("db", "migrate") if row["attestor"]]
    assert done == [("acme-asset", "tags"), ("acme-rack", "machines"), ("acme-rack", "releases")]
    assert watchword("db", "migrate") == []
    assert all(row["applied"] for row in watchword("db", "status"))


async def test_machine_joins_by_the_example_through_the_command_line(installed: Installed) -> None:
    """Verifier in the worker, prover in the agent, both from the wheel, and nothing but commands in between."""
    key = Ed25519PrivateKey.generate()
    watchword = installed.commands / "watchword"
    with server_folder("example") as folder:
        attestors, vendor = folder / "attestors.toml", folder / "vendor.pem"
        attestors.write_text(
            '[attestors]\nenabled = ["acme-asset"]\n[attestors.acme-asset]\ntenants = ["acme"]\nkinds = ["inventory.refresh", "logs.collect"]\n'
        )
        vendor.touch(mode=0o600)
        vendor.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        with developing(
            watchword, folder / "data", clean_environment(), "--attestors", str(attestors)
        ) as dev:
            await _known(dev.dsn, key, tag="ACME-000017")
            place = ("--state", str(folder / "machine"), "--gateway", dev.gateway)
            run([str(watchword), "agent", "bootstrap", *place, "--pin", dev.pin], folder)
            asked = [
                str(watchword), "agent", "join", *place, "--attestor", "acme-asset", "--json",
                "--option", "vendor=initech", "--option", f"vendor_key_file={vendor}",
                "--give-up-after", "2m",
            ]  # fmt: skip
            unsaid = subprocess.run(
                asked, cwd=folder, env=clean_environment(), capture_output=True, text=True,
                check=False, timeout=100,
            )  # fmt: skip
            assert unsaid.returncode == 2
            assert "--option tag=" in unsaid.stderr
            shown = json.loads(run([*asked, "--option", "tag=ACME-000017"], folder))
            nodes = json.loads(
                run(
                    [str(watchword), "nodes", "list", "--json", "--config", str(dev.config)], folder
                )
            )
    (node,) = (one for one in nodes["items"] if one["attestor"] == "acme-asset")
    assert node["id"] in json.dumps(shown)
    assert (node["tenant"], node["pool"]) == ("acme", "gpu")


async def _known(dsn: str, key: Ed25519PrivateKey, *, tag: str) -> None:
    """Write down a vendor and a tag, as the example's operator does."""
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "watchword"})
    try:
        await connection.execute(
            "INSERT INTO plg_acme_asset__vendors (id, public_key) VALUES ('initech', $1)", public
        )
        await connection.execute(
            "INSERT INTO plg_acme_asset__tags (tag, tenant, pool) VALUES ($1, 'acme', 'gpu')", tag
        )
    finally:
        await connection.close()
