"""What attestors lean on, written down from the command line."""

import json
from pathlib import Path

import pytest

from tests.support.commands import Command, result
from watchword.handlers.attestors.discovery.evidence import TYP, read_assertion
from watchword.handlers.attestors.image.evidence import parse_image
from watchword.handlers.crypto.jws import unverified_kid, verify

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def acme(watchword: Command) -> None:
    watchword("tenants", "create", "acme")
    watchword("pools", "create", "acme", "gpu")


def test_an_images_secret_is_shown_once(watchword: Command) -> None:
    """Whoever has it can ask to join as that image, for as long as nobody revokes it."""
    done = watchword("images", "create", "acme", "gpu", "--kind", "logs.*")
    text = done.stdout.splitlines()[-1].split()[-1]
    image = parse_image(text)

    assert "wi1." not in done.stderr
    (listed,) = result(watchword("images", "list", "--json"))["items"]
    assert (listed["id"], listed["secondFact"], listed["state"]) == (image.id, "approval", "usable")
    assert "secretSha256" not in listed
    watchword("images", "revoke", image.id)
    watchword("images", "revoke", image.id, code=4)
    watchword("images", "revoke", text, code=2)
    watchword("images", "create", "acme", "nowhere", code=3)


def test_a_sites_key_is_made_added_and_signs(watchword: Command, tmp_path: Path) -> None:
    """Both halves come with the product: nobody has to know how to make such a key or such a JWS."""
    watchword("sites", "create", "acme", "berlin")
    key_file = tmp_path / "site.pem"
    made = result(watchword("site", "make-key", "--key-file", str(key_file), "--json"))
    added = result(
        watchword("site", "keys", "add", "acme", "berlin", "gpu", "--public-key-file", made["publicKeyFile"],
                  "--approval", "unknown-machines", "--json")
    )  # fmt: skip
    csr = "ab" * 32
    token = watchword(
        "site", "assert", "--key-file", str(key_file), "--site", "berlin", "--csr-sha256", csr,
        "--mac", "3C-FD-FE-12-34-56",
    ).stdout.strip().encode()  # fmt: skip

    assert made["kid"] == added["kid"] == unverified_kid(token)
    said = read_assertion(
        verify(token, bytes.fromhex(added["publicKey"]), typ=TYP, kid=added["kid"])
    )
    assert (said.csr_sha256, said.macs) == (csr, ("3cfdfe123456",))
    watchword(
        "site", "assert", "--key-file", str(key_file), "--site", "berlin", "--csr-sha256", csr,
        "--mac", "52:54:00:12:34:56", "--product-uuid", "00000000-0000-0000-0000-000000000000", code=2,
    )  # fmt: skip
    assert key_file.stat().st_mode & 0o777 == 0o600
    watchword("site", "make-key", "--key-file", str(key_file), code=4)
    watchword("site", "keys", "add", "acme", "berlin", "gpu", "--public-key-file", str(key_file), code=2)  # fmt: skip
    watchword("site", "keys", "revoke", added["kid"])
    assert result(watchword("site", "keys", "list", "--json"))["items"] == []


def test_accounts_and_tpms(watchword: Command, tmp_path: Path) -> None:
    """A list is taken whole or not at all, with every line that is wrong."""
    watchword("cloud", "accounts", "add", "aws", "123456789012", "acme", "gpu", "--region", "eu-central-1")  # fmt: skip
    watchword("cloud", "accounts", "revoke", "aws", "123456789012")
    eks = tmp_path / "eks.csv"
    eks.write_text(f"# rack 7\n{'ab' * 32},slot 1\nhello\n{'ab' * 32}\n")
    done = watchword("tpm", "enrol", "acme", "gpu", "--from-file", str(eks), code=2)
    assert "line 3" in done.stderr
    assert "line 4" in done.stderr
    eks.write_text(f"{'ab' * 32},slot 1\n{'CD' * 32}\n")
    watchword("tpm", "enrol", "acme", "gpu", "--from-file", str(eks))
    watchword("tpm", "enrol", "acme", "gpu", "--from-file", str(eks), code=4)
    listed = result(watchword("tpm", "list", "--json"))["items"]
    assert [(row["ekSha256"], row["note"]) for row in listed] == [
        ("ab" * 32, "slot 1"),
        ("cd" * 32, ""),
    ]
    watchword("tpm", "revoke", "cd" * 32)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"pcrs": [0, 7]}))
    done = watchword("tpm", "policy", "set", "acme", "gpu", "--from-file", str(policy), code=2)
    assert "log" in done.stderr
    good = {"pcrs": [0, 7], "banks": ["sha256"], "log": "ignored", "unsafe_first_seen": True}
    policy.write_text(json.dumps(good))
    watchword("tpm", "policy", "set", "acme", "gpu", "--from-file", str(policy))
    one, other = (f"sha256:7={digit * 64}" for digit in "ab")
    watchword("tpm", "policy", "values", "acme", "gpu", "--add", one, "--add", other)
    watchword("tpm", "policy", "values", "acme", "gpu", "--remove", one)
    watchword("tpm", "policy", "values", "acme", "gpu", "--remove", one, code=2)
    watchword("tpm", "policy", "values", "acme", "gpu", "--add", "sha256:7=zz", code=2)
    watchword("tpm", "policy", "values", "acme", "gpu", "--add", f"sha256:9={'a' * 64}", code=2)
    (said,) = result(watchword("tpm", "policy", "list", "--json"))["items"]
    assert said["policy"] == {**good, "values": {"sha256": {"7": ["b" * 64]}}}
    assert result(watchword("rebuild", "--check", "--json"))["items"] == []


def test_tpms_are_enrolled_by_name_and_may_have_to_wait(watchword: Command) -> None:
    """One machine at a time, too, and a person may want to see its first join."""
    keys = ["01" * 32, "02" * 32]
    watchword("tpm", "enrol", "acme", "gpu", "--ek", keys[0], "--ek", keys[1], "--note", "rack 8", "--approval")  # fmt: skip
    listed = result(watchword("tpm", "list", "--json"))["items"]
    assert [(row["ekSha256"], row["note"], row["approval"]) for row in listed] == [
        (key, "rack 8", True) for key in keys
    ]
    watchword("tpm", "enrol", "acme", "gpu", "--ek", "0102", code=2)
    watchword("tpm", "enrol", "acme", "gpu", code=2)
    assert result(watchword("rebuild", "--check", "--json"))["items"] == []
