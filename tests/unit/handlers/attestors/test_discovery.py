"""An assertion as a site's agent signs it, and the ramdisk's half; which names can tell a machine."""

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from watchword.handlers.attestors.discovery.evidence import (
    MAX_ASSERTION_BYTES,
    TYP,
    read_assertion,
    sign_assertion,
)
from watchword.handlers.attestors.discovery.prover import DiscoveryProver
from watchword.handlers.attestors.discovery.verifier import KINDS
from watchword.handlers.crypto.jws import JwsSigner, unverified_kid, verify
from watchword.handlers.errors import BadArgument, SignatureBroken
from watchword.handlers.hardware_ids import (
    KNOWN_BAD_UUIDS,
    canonical_mac,
    canonical_uuid,
    identifies,
    identifying_uuid,
)
from watchword.handlers.kinds import known_kind
from watchword.handlers.prover import NoEvidence
from watchword.schemas.errors import SchemaError

CSR = bytes(range(32))
THEN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
KEY = JwsSigner("k1", Ed25519PrivateKey.from_private_bytes(bytes(32)))


def _signed(**changes: Any) -> bytes:  # noqa: ANN401 - also what no field may be
    said: dict[str, Any] = {
        "site": "berlin",
        "csr_sha256": CSR,
        "macs": ["3C-EC-EF-00-00-02", "3cec.ef00.0001", "3c:ec:ef:00:00:02"],
        "product_uuid": "4C4C4544-0043-3510-8052-B4C04F4E3332",
        "bmc": "10.0.0.7",
        "expires_at": THEN,
    }
    return sign_assertion(KEY, **{**said, **changes})


def test_assertion_is_signed_canonical_and_in_one_spelling() -> None:
    """Agents of one release meet workers of another: the bytes are the documented ones."""
    token = _signed()
    payload = verify(token, KEY.public, typ=TYP, kid="k1")
    said = json.loads(payload)
    nonce = said.pop("nonce")

    assert said == {
        "version": 1,
        "site": "berlin",
        "csrSha256": CSR.hex(),
        "macs": ["3cecef000001", "3cecef000002"],
        "productUuid": "4c4c4544-0043-3510-8052-b4c04f4e3332",
        "bmc": "10.0.0.7",
        "expiresAt": "2026-01-02T03:04:05.678Z",
    }
    assert len(nonce) == 64
    assert read_assertion(payload).expiry == THEN
    assert len(token) < MAX_ASSERTION_BYTES
    assert unverified_kid(token) == "k1"


def test_largest_assertion_fits() -> None:
    """A machine with sixteen adapters and a long name of its controller is no special case."""
    macs = [f"3cecef0000{n:02x}" for n in range(16)]
    assert len(_signed(macs=macs, bmc="b" * 64, site="s" * 63)) <= MAX_ASSERTION_BYTES


@pytest.mark.case("B47")
def test_nonces_differ() -> None:
    """A nonce that had become a constant let recorded proofs be replayed: 256 bits, fresh each time."""
    nonces = {
        json.loads(verify(_signed(), KEY.public, typ=TYP, kid=None))["nonce"] for _ in range(300)
    }

    assert len(nonces) == 300


@pytest.mark.parametrize(
    "changes",
    [
        {"site": "Berlin"},
        {"site": ""},
        {"csr_sha256": b""},
        {"macs": ["3cecef"]},
        {"macs": [f"3cecef0000{n:02x}" for n in range(17)]},
        {"product_uuid": "none"},
        {"bmc": "\x1b[2J"},
        {"bmc": ""},
    ],
)
def test_agent_signs_no_nonsense(changes: dict[str, Any]) -> None:
    """A mistake is told to the site's agent, and not by a refusal that the machine never sees."""
    with pytest.raises(BadArgument):
        _signed(**changes)


@given(payload=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    """Under a signature there can be anything."""
    with pytest.raises(SchemaError):
        read_assertion(payload)


@given(token=st.binary(max_size=300))
def test_name_of_a_key_is_read_or_refused(token: bytes) -> None:
    """It is looked up before anything is verified."""
    with contextlib.suppress(SignatureBroken):
        assert isinstance(unverified_kid(token), str)


async def test_prover_passes_on_what_is_about_its_csr(tmp_path: Path) -> None:
    """An assertion about an older key of the machine is none: nothing is sent, and the site's agent is asked again."""
    file = tmp_path / "assertion"
    prover = DiscoveryProver.of_file(file)
    with pytest.raises(NoEvidence):
        await prover.evidence(CSR, "ramdisk")
    file.write_bytes(_signed() + b"\n")

    assert await prover.evidence(CSR, "ramdisk") == file.read_bytes().strip()
    with pytest.raises(NoEvidence) as caught:
        await prover.evidence(bytes(32), "ramdisk")
    assert bytes(32).hex() in str(caught.value)
    with pytest.raises(NoEvidence):
        await prover.answer(b"challenge", CSR, "ramdisk")


@pytest.mark.parametrize("content", [b"x", b"a.b.c", b"x" * 10_000, KEY.sign(b"{}", TYP)])
async def test_prover_refuses_a_file_of_something_else(tmp_path: Path, content: bytes) -> None:
    """A wrong path is told at once."""
    file = tmp_path / "assertion"
    file.write_bytes(content)
    with pytest.raises(BadArgument):
        await DiscoveryProver.of_file(file).evidence(CSR, "ramdisk")


def test_kinds_of_ramdisks_are_registered() -> None:
    """A kind that matches nothing would fail at the machine, long after the join."""
    assert all(known_kind(kind) for kind in KINDS)


# Which names can tell a machine


@pytest.mark.case("B81")
@pytest.mark.parametrize(
    "text",
    ["AA-BB-CC-DD-EE-FF", "aabb.ccdd.eeff", "aa:bb:cc:dd:ee:ff", " AABBCCDDEEFF\n"],
)
def test_one_mac_has_one_spelling(text: str) -> None:
    """The same MAC in several spellings made several machines of one."""
    assert canonical_mac(text) == "aabbccddeeff"


@pytest.mark.case("B81")
@pytest.mark.parametrize(
    ("mac", "one"),
    [
        ("3cecef000001", True),
        ("000000000000", False),
        ("ffffffffffff", False),
        ("02005e000001", False),  # locally administered
        ("aabbccddeeff", False),  # the same
        ("01005e000001", False),  # a group's
    ],
)
def test_mac_identifies_only_if_a_maker_gave_it(mac: str, one: bool) -> None:  # noqa: FBT001 - a column
    """What anybody can make up, or many share, names no machine."""
    assert identifies(mac) is one


@pytest.mark.case("B77")
@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "Not Settable",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "20202020-2020-2020-2020-202020202020",
        "03000200-0400-0500-0006-000700080009",
        "03000200040005000006000700080009",
        *sorted(KNOWN_BAD_UUIDS),
    ],
)
def test_weak_uuid_never_identifies(text: str | None) -> None:
    """Boards ship with equal, all-zero or all-F UUIDs; a machine was kicked out for its neighbour."""
    assert identifying_uuid(text) is None


@pytest.mark.case("B77")
def test_real_uuid_identifies_in_one_spelling() -> None:
    """Dell, for one, writes its service tag into it."""
    real = "4c4c4544-0043-3510-8052-b4c04f4e3332"
    for text in (real, real.upper(), real.replace("-", ""), f" {real}\n"):
        assert identifying_uuid(text) == real
    assert canonical_uuid("{" + real + "}") is None
