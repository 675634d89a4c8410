"""The prover with a TPM that `swtpm` emulates, against a real service: what a chip makes is what the verifier takes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.joins import Bench, Machine, certificate_of, join_bench
from tests.support.proving import csr_sha256, first_request, join, last_reason, next_request
from tests.support.renewals import Node
from tests.support.swtpm import SoftwareTpm, made, needs_swtpm
from tests.support.tpm import set_policy
from watchword.handlers.attestor import Subject
from watchword.handlers.attestors.tpm.certificates import in_file, read_certificate
from watchword.handlers.attestors.tpm.config import Config
from watchword.handlers.attestors.tpm.endorsement import Anchors
from watchword.handlers.attestors.tpm.evidence import TpmEvidence
from watchword.handlers.attestors.tpm.prover import TpmProver
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.handlers.crypto.renewals import RenewalEvidence, signed_text
from watchword.handlers.operators.actor import Actor
from watchword.handlers.operators.bans import add_bans
from watchword.handlers.prover import NoEvidence
from watchword.handlers.store.connection import Database
from watchword.streams.agent.tpm.chip import TssChip
from watchword.streams.agent.tpm.library import library
from watchword.streams.agent.tpm.node_key import read_tpm_key
from watchword.streams.agent.tpm.options import AkKind, EkKind
from watchword.streams.agent.tpm.patience import Patience
from watchword.streams.agent.tpm.renewing import KeysInTpm

# A chip takes its time for an RSA key, and an emulated one the machine's.
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

PCRS = [0, 1, 2, 3, 4, 7, 8, 9, 11]
POLICY: dict[str, Any] = {
    "pcrs": PCRS,
    "banks": ["sha256"],
    "log": "optional",
    "values": {"sha256": {str(n): ["00" * 32] for n in PCRS}},
}


@pytest.fixture(scope="module")
def swtpm(tmp_path_factory: pytest.TempPathFactory) -> Generator[SoftwareTpm]:
    """Give a TPM that is on."""
    needs_swtpm()
    tpm = made(tmp_path_factory.mktemp("swtpm"))
    with tpm.running():
        yield tpm


@pytest.fixture
async def bench(database: str, swtpm: SoftwareTpm) -> AsyncGenerator[Bench]:
    """Give a service that trusts this TPM's maker, and a pool for TPMs that have just been switched on."""
    roots = [read_certificate(der) for der in in_file(swtpm.root.read_bytes())]
    async with join_bench(database, attestors=[TpmAttestor(Config(Anchors.of(roots)))]) as bench:
        await bench.place("acme", "web")
        await set_policy(bench, POLICY)
        yield bench


async def _enrol(bench: Bench, prover: TpmProver) -> None:
    shown = TpmEvidence.decode(await prover.evidence(b"", "node"))
    await bench.fetch(
        "INSERT INTO tpm_endorsements (ek_sha256, tenant, pool, role, allowed_kinds, created_by)"
        " VALUES ($1, 'acme', 'web', 'node', '{}', 'test') ON CONFLICT DO NOTHING",
        sha256(shown.ek[2:]).digest(),
    )


@pytest.mark.parametrize(
    ("ek", "ak"),
    [
        ("rsa2048", "p256"),
        ("rsa2048", "rsa2048"),
        ("p384", "p256"),
        ("p384", "p384"),
        ("p384", "rsa2048-pss"),
        ("p256", "p256"),
    ],
)
async def test_every_pair_of_keys_of_a_chip_joins(
    bench: Bench, swtpm: SoftwareTpm, ek: EkKind, ak: AkKind
) -> None:
    """The P-256 endorsement key has no certificate: it is known by its hash alone."""
    prover = TpmProver(TssChip(swtpm.tcti, ek, ak))
    await _enrol(bench, prover)

    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    before = TpmEvidence.decode(await prover.evidence(b"", "node")).ak
    # A machine whose disk is new has the same attestation key; another kind of it is the same chip's.
    again = TpmProver(TssChip(swtpm.tcti, ek, ak))
    assert TpmEvidence.decode(await again.evidence(b"", "node")).ak == before
    other = TpmProver(TssChip(swtpm.tcti, ek, "p256"))
    assert (await join(bench, bench.machine(), other))["outcome"] == "joined"
    assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_key_made_in_the_chip_is_certified(bench: Bench, swtpm: SoftwareTpm) -> None:
    """The CSR is signed inside, and the attestation key vouches for where."""
    chip = TssChip(swtpm.tcti)
    key_pem, csr = await asyncio.to_thread(KeysInTpm(chip).make)
    prover = TpmProver(chip, node_key=lambda: key_pem)
    await _enrol(bench, prover)
    machine = Machine(bench.seal_to, csr=csr)

    certificate = x509.load_der_x509_certificate(certificate_of(await join(bench, machine, prover)))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    shown = TpmEvidence.decode(await prover.evidence(b"", "node"))
    name = b"\x00\x0b" + sha256(shown.ak[2:]).digest()
    statement = f"urn:bc:tpm-ak:{sha256(name).hexdigest()}"
    assert statement in names.get_values_for_type(x509.UniformResourceIdentifier)

    # A new disk: another key in the same chip, and the statement is the same.
    key_pem, csr = await asyncio.to_thread(KeysInTpm(TssChip(swtpm.tcti)).make)
    again = TpmProver(TssChip(swtpm.tcti), node_key=lambda: key_pem)
    assert (await join(bench, Machine(bench.seal_to, csr=csr), again))["outcome"] == "joined"
    assert await bench.one("SELECT count(*) FROM nodes") == 1
    # A key in a file would be less than the node had.
    bare = TpmProver(TssChip(swtpm.tcti))
    assert (await join(bench, bench.machine(), bare))["outcome"] == "refused"


async def test_key_in_the_chip_is_renewed_to_one_in_the_same_chip(
    bench: Bench, swtpm: SoftwareTpm, tmp_path: Path
) -> None:
    """What the certificate says of its key stays true, or is not said any more."""
    chip = TssChip(swtpm.tcti)
    keys = KeysInTpm(chip)
    current, csr = await asyncio.to_thread(keys.make)
    prover = TpmProver(chip, node_key=lambda: current)
    await _enrol(bench, prover)
    answer = await join(bench, Machine(bench.seal_to, csr=csr), prover)
    certificate = certificate_of(answer)
    statement = _statement(certificate)
    assert statement is not None
    node = Node(answer["joined"]["nodeId"], ec.generate_private_key(ec.SECP256R1()), certificate)

    following, csr = await asyncio.to_thread(keys.make)
    machine = Machine(bench.seal_to, csr=csr)
    # A strange chip's word, another renewal's proof, and none: the statement does not hold for this key.
    (tmp_path / "strange").mkdir()
    strange = made(tmp_path / "strange")
    with strange.running():
        theirs = KeysInTpm(TssChip(strange.tcti))
        their_key, their_csr = await asyncio.to_thread(theirs.make)
        their = Machine(bench.seal_to, csr=their_csr)
        ours = await _vouched(keys, node, current, following, their, "1")
        said = await theirs.vouch(their_key, their_key, _text(node, their, "1"))
    yesterday = await _vouched(keys, node, current, following, machine, "2")
    for nth, (shown, proof) in enumerate(((ours, said.proof), (yesterday, yesterday.proof))):
        asks, request_id = (their, "1") if nth == 0 else (machine, "3")
        signature = (await keys.vouch(current, following, _text(node, asks, request_id))).signature
        evidence = replace(shown, signature=signature, proof=proof).encode()
        [refused] = await bench.ask(
            node.renewal(asks, payload=evidence, request_id=_id(request_id))
        )
        assert refused["outcome"] == "refused"
        assert await last_reason(bench) == "renew:key-statement-unknown"

    evidence = (await _vouched(keys, node, current, following, machine, "4")).encode()
    [renewed] = await bench.ask(node.renewal(machine, payload=evidence, request_id=_id("4")))
    assert renewed["joined"]["nodeId"] == node.id
    assert _statement(certificate_of(renewed)) == statement


async def test_ban_of_a_chip_ends_its_node_and_what_it_would_become(
    bench: Bench, swtpm: SoftwareTpm
) -> None:
    """A stolen machine is banned by what cannot be changed in it."""
    chip = TssChip(swtpm.tcti)
    prover = TpmProver(chip)
    await _enrol(bench, prover)
    machine = bench.machine()
    node = Node.of(machine, await join(bench, machine, prover))
    shown = TpmEvidence.decode(await prover.evidence(b"", "node"))
    subject = Subject("ek", sha256(shown.ek[2:]).hexdigest())
    database = Database(bench.dsn, application_name="test")
    try:
        await add_bans(database, Actor("alice", "stolen"), [subject])
    finally:
        await database.close()

    assert await bench.one("SELECT state FROM nodes") == "banned"
    [refused] = await bench.ask(node.renewal(bench.machine()))
    assert refused["outcome"] == "refused"
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "join:banned"


def _statement(certificate: bytes) -> str | None:
    leaf = x509.load_der_x509_certificate(certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return next((uri for uri in uris if uri.startswith("urn:bc:tpm-ak:")), None)


def _id(number: str) -> str:
    return f"019ae000-0000-7000-8000-00000000000{number}"


def _text(node: Node, machine: Machine, number: str) -> bytes:
    return signed_text(node.tbs_sha256, csr_sha256(machine), _id(number))


async def _vouched(
    keys: KeysInTpm, node: Node, current: bytes, following: bytes, machine: Machine, number: str
) -> RenewalEvidence:
    vouched = await keys.vouch(current, following, _text(node, machine, number))
    public = read_tpm_key(current).public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return RenewalEvidence(node.tbs_sha256, spki, vouched.signature, vouched.proof)


async def test_challenge_for_another_chip_is_no_evidence(bench: Bench, swtpm: SoftwareTpm) -> None:
    """The TPM opens no credential that names another key; nothing is sent then."""
    prover = TpmProver(TssChip(swtpm.tcti))
    other = TpmProver(TssChip(swtpm.tcti, ak="p384"))
    await _enrol(bench, prover)
    machine = bench.machine()
    [challenged] = await bench.ask(await first_request(machine, prover))
    with pytest.raises(NoEvidence):
        await next_request(machine, other, challenged)
    with pytest.raises(NoEvidence):
        await prover.answer(b"no challenge", csr_sha256(machine), "node")


async def test_other_boot_is_refused_until_it_is_listed(bench: Bench, swtpm: SoftwareTpm) -> None:
    """What a boot loader measures changes a PCR, and the quote tells."""
    prover = TpmProver(TssChip(swtpm.tcti))
    await _enrol(bench, prover)
    listed = {**POLICY["values"]["sha256"], "0": ["11" * 32]}
    await set_policy(bench, {**POLICY, "values": {"sha256": listed}})
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:pcr-mismatch"
    await set_policy(
        bench, {**POLICY, "values": {"sha256": {**listed, "0": ["11" * 32, "00" * 32]}}}
    )
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"


async def test_bank_that_the_policy_refuses_is_named(bench: Bench, swtpm: SoftwareTpm) -> None:
    """A chip without an accepted bank quotes what it has, so that an operator reads why it stays out."""
    prover = TpmProver(TssChip(swtpm.tcti))
    await _enrol(bench, prover)
    values = {str(n): ["00" * 64] for n in PCRS}
    await set_policy(bench, {**POLICY, "banks": ["sha512"], "values": {"sha512": values}})
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:bank-weak"


async def test_objects_that_a_killed_process_left_are_in_nobodys_way(swtpm: SoftwareTpm) -> None:
    """Without a resource manager a chip with three places is full until somebody tidies up."""
    chip = TssChip(swtpm.tcti, "p256", patience=Patience(sleep=lambda _: None))
    prover = TpmProver(chip)
    await prover.evidence(b"", "node")
    tss = library()
    # As a process that dies while it works: its objects stay loaded.
    with tss.ESAPI(swtpm.tcti) as esapi:
        utils = __import__("tpm2_pytss.utils", fromlist=["utils"])
        _, template = utils.create_ek_template("EK-ECC256", lambda index: _no_index(utils, index))
        for _ in range(3):
            esapi.create_primary(tss.TPM2B_SENSITIVE_CREATE(), template, tss.ESYS_TR.ENDORSEMENT)
        with pytest.raises(tss.TSS2_Exception):
            esapi.create_primary(tss.TPM2B_SENSITIVE_CREATE(), template, tss.ESYS_TR.ENDORSEMENT)

    assert TpmEvidence.decode(await prover.evidence(b"", "node")).ek


async def test_chip_that_is_away_is_no_evidence() -> None:
    """A device that is not there yet is a matter of this machine, and of nobody else."""
    needs_swtpm()
    chip = TssChip("swtpm:host=127.0.0.1,port=1", patience=Patience(2, sleep=lambda _: None))
    with pytest.raises(NoEvidence):
        await TpmProver(chip).evidence(b"", "node")


async def test_certificate_that_was_handed_in_is_shown_in_the_place_of_the_chips(
    swtpm: SoftwareTpm,
) -> None:
    """Some vendors give their certificates by a service and not with the chip."""
    chip = TssChip(swtpm.tcti, "p256", certificate=lambda: (b"\x30\x00", (b"\x30\x01",)))
    shown = TpmEvidence.decode(await TpmProver(chip).evidence(b"", "node"))
    assert (shown.certificate, shown.intermediates) == (b"\x30\x00", (b"\x30\x01",))


def _no_index(utils: Any, index: int) -> bytes:  # noqa: ANN401 - tpm2-pytss has few annotations
    raise utils.NoSuchIndex(index)


def test_values_for_a_policy_are_json(swtpm: SoftwareTpm) -> None:
    """An operator copies them into a policy as they are."""
    with TssChip(swtpm.tcti).opened() as session:
        values = json.loads(json.dumps(session.pcrs()))
    assert values["sha256"]["0"] == "00" * 32
    assert {"sha1", "sha256", "sha384"} <= values.keys()
