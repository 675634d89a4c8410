"""tpm on a real service: which machines join by their TPM, as what, and which do not."""

import asyncio
import secrets
from base64 import b64decode
from collections.abc import AsyncGenerator
from hashlib import sha256
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.crypto import spki_of
from tests.support.joins import Bench, Machine, certificate_of
from tests.support.proving import (
    approve_all,
    ban,
    csr_sha256,
    first_request,
    join,
    last_reason,
    next_request,
    state_of,
)
from tests.support.tpm import SIGNING, STORAGE, Maker, SoftProver, SoftTpm, area, new_key
from tests.support.tpm_service import NODES, enrolled, tpm_service
from watchword.handlers.attestors.tpm.config import WaitingRoom
from watchword.handlers.attestors.tpm.evidence import Certification
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def maker() -> Maker:
    """Give a vendor whose root is trusted."""
    return Maker()


@pytest.fixture
async def bench(database: str, maker: Maker) -> AsyncGenerator[Bench]:
    """Give a service where only enrolled TPMs get in."""
    async with tpm_service(database, maker) as bench:
        yield bench


@pytest.fixture
async def waiting(database: str, maker: Maker) -> AsyncGenerator[Bench]:
    """Give a service where a genuine TPM that nobody enrolled may ask an operator."""
    room = WaitingRoom(TenantId("acme"), "web", allowed_kinds=("diag.*",))
    async with tpm_service(database, maker, room) as bench:
        yield bench


@pytest.mark.case("B43")
@pytest.mark.parametrize("ek", ["rsa2048", "p256", "p384"])
@pytest.mark.parametrize(
    ("ak", "scheme"),
    [("rsa2048", "rsassa"), ("rsa2048", "rsapss"), ("p256", "ecdsa"), ("p384", "ecdsa")],
)
async def test_every_pair_of_keys_joins(bench: Bench, ek: str, ak: str, scheme: str) -> None:
    """Chips have RSA or ECC endorsement keys, and make attestation keys of either kind."""
    prover = await enrolled(bench, SoftTpm(ek, ak, scheme))
    answer = await join(bench, bench.machine(), prover)

    assert answer["outcome"] == "joined"
    joined = answer["joined"]
    assert (joined["tenant"], joined["pool"], joined["allowedKinds"]) == ("acme", "web", ["diag.*"])
    ek_hash = sha256(prover.tpm.ek[2:]).hexdigest()
    chip = sha256(spki_of(prover.tpm.ek_key)).hexdigest()
    assert await bench.one("SELECT hardware_key FROM nodes") == f"urn:bc:tpm-ek:{chip}"
    assert await bench.one("SELECT node_key_uri FROM nodes") is None
    assert await bench.one("SELECT value FROM node_subjects WHERE kind = 'ek'") == ek_hash


@pytest.mark.case("B44")
async def test_either_salt_of_rsapss(bench: Bench) -> None:
    """Some chips take a salt as long as the digest, others as long as fits; a third length is no chip's."""
    prover = await enrolled(bench, SoftTpm("p256", "rsa2048", "rsapss"))
    prover.tpm.salt = 256 - 32 - 2
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    prover.tpm.salt = 20
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:quote"


async def test_challenge_leaves_no_row_and_is_fresh(bench: Bench) -> None:
    """Whoever knows a public key may ask as often as they like; it costs no space."""
    request = await first_request(bench.machine(), await enrolled(bench))
    answers = [answer for _ in range(2) for answer in await bench.ask(request)]
    first, again = (answer["deferred"]["challenge"] for answer in answers)

    assert first != again
    for table in ("inbox", "nodes", "journal", "refusals", "join_requests"):
        assert await bench.one(f"SELECT count(*) FROM {table}") == 0  # noqa: S608 - our own names


async def test_genuine_tpm_is_not_ours(bench: Bench, maker: Maker) -> None:
    """A vendor certifies millions of chips; without a word of an operator none of them is ours."""
    answer = await join(bench, bench.machine(), SoftProver(SoftTpm(), maker))
    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:not-enrolled"


@pytest.mark.case("B38")
async def test_self_made_certificate_gets_no_challenge(waiting: Bench, maker: Maker) -> None:
    """Trust in the key is judged first, before anything is handed out or written."""
    prover = SoftProver(SoftTpm(), maker)
    prover.certificate = maker.certify(prover.tpm.ek_key, self_signed=True)
    [answer] = await waiting.ask(await first_request(waiting.machine(), prover))

    assert answer["outcome"] == "refused"
    assert await last_reason(waiting) == "tpm:ek-certificate"


async def test_genuine_tpm_waits_for_an_operator(waiting: Bench, maker: Maker) -> None:
    """The row is written after the proof, names the chip, and admits that chip alone."""
    machine, prover = waiting.machine(), SoftProver(SoftTpm(), maker)
    request = await first_request(machine, prover)
    [challenged] = await waiting.ask(request)
    assert await waiting.one("SELECT count(*) FROM join_requests") == 0
    [waits] = await waiting.ask(await next_request(machine, prover, challenged))
    assert waits["deferred"]["type"] == "approval"

    await approve_all(waiting)
    assert (await join(waiting, machine, prover))["outcome"] == "joined"
    # Now it is a bound node, and comes back without asking.
    assert (await join(waiting, waiting.machine(), prover))["outcome"] == "joined"
    assert await waiting.one("SELECT count(*) FROM nodes") == 1


async def test_attestation_key_of_another_tpm_is_refused(bench: Bench) -> None:
    """The credential is for one name: a genuine chip vouches for no key outside of it."""
    prover = await enrolled(bench)
    machine = bench.machine()
    [challenged] = await bench.ask(await first_request(machine, prover))
    prover.changes = {"secret": secrets.token_bytes(32)}
    [answer] = await bench.ask(await next_request(machine, prover, challenged))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:activation"


async def test_challenge_belongs_to_the_csr_and_to_the_keys(bench: Bench) -> None:
    """What round one hands out is worth nothing to another machine, nor with another attestation key."""
    prover = await enrolled(bench)
    machine, other = bench.machine(), bench.machine()
    [challenged] = await bench.ask(await first_request(machine, prover))
    challenge = b64decode(challenged["deferred"]["challenge"])
    payload = await prover.answer(challenge, csr_sha256(machine), "node")
    [moved] = await bench.ask(other.request(payload, attestor="tpm", state=state_of(challenged)))
    assert moved["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:challenge"

    prover.tpm.ak = SoftTpm().ak
    [swapped] = await bench.ask(
        machine.request(
            prover.shown(_answer_in(payload)), attestor="tpm", state=state_of(challenged)
        )
    )
    assert swapped["outcome"] == "refused"


async def test_key_statement_needs_a_certification_of_the_csrs_key(bench: Bench) -> None:
    """The certificate says `tpm-ak` only if the key in it is in that TPM."""
    prover = await enrolled(bench)
    key = ec.generate_private_key(ec.SECP256R1())
    prover.node_key = key
    answer = await join(bench, Machine(bench.seal_to, key), prover)

    assert answer["outcome"] == "joined"
    ak = sha256(b"\x00\x0b" + sha256(prover.tpm.ak[2:]).digest()).hexdigest()
    certificate = x509.load_der_x509_certificate(certificate_of(answer))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert f"urn:bc:tpm-ak:{ak}" in names.get_values_for_type(x509.UniformResourceIdentifier)

    # Another key than the CSR's, and a certification that the key's owner wrote.
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:certify"
    public = area(new_key("p256"), SIGNING)
    prover.changes = {"certification": Certification(public, b"\xff\x54\x43\x47", b"\0")}
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"


async def test_reinstalled_machine_reclaims_its_node(bench: Bench) -> None:
    """The chip is the machine: a new disk, a new key and a new attestation key are the same node."""
    prover = await enrolled(bench)
    first = await join(bench, bench.machine(), prover)
    again = SoftTpm()
    again.ek_key, again.ek = prover.tpm.ek_key, prover.tpm.ek
    second = await join(bench, bench.machine(), SoftProver(again))

    assert second["outcome"] == "joined"
    assert second["joined"]["nodeId"] == first["joined"]["nodeId"]
    assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_chip_that_tells_other_attributes_is_the_same_chip(
    waiting: Bench, maker: Maker
) -> None:
    """A credential opens whatever attributes the machine tells; the key itself is one node's for good."""
    prover = SoftProver(SoftTpm(), maker)
    machine = waiting.machine()
    await join(waiting, machine, prover)
    await approve_all(waiting)
    assert (await join(waiting, machine, prover))["outcome"] == "joined"

    prover.tpm.ek = area(prover.tpm.ek_key, STORAGE ^ 0x40, storage=True)
    other = waiting.machine()
    await join(waiting, other, prover)
    await approve_all(waiting)
    assert (await join(waiting, other, prover))["outcome"] == "refused"
    assert await last_reason(waiting) == "join:already-enrolled"
    assert await waiting.one("SELECT count(*) FROM nodes") == 1


async def test_twenty_first_joins_of_one_chip_make_one_node(bench: Bench) -> None:
    """However many copies race, an endorsement key is one node's for good."""
    prover = await enrolled(bench)
    answers = await asyncio.gather(*(join(bench, bench.machine(), prover) for _ in range(20)))

    assert "joined" in {answer["outcome"] for answer in answers}
    assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_revoked_banned_and_wrong_role_are_refused(bench: Bench) -> None:
    """An operator's word against a chip counts, whatever the chip proves."""
    prover = await enrolled(bench)
    assert (await join(bench, bench.machine(), prover, role="site"))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:wrong-role"
    await ban(bench, "ek", sha256(prover.tpm.ek[2:]).hexdigest())
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "join:banned"
    await bench.fetch("UPDATE tpm_endorsements SET revoked_at = watchword.now()")
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:revoked"


@pytest.mark.case("B54")
async def test_evidence_cut_anywhere_is_refused_once(bench: Bench) -> None:
    """A missing field ends the judgement; it is never reported and then used."""
    prover = await enrolled(bench)
    payload = await prover.evidence(b"", "node")
    sizes = range(0, len(payload), 11)
    answers = await bench.ask(
        *(bench.machine().request(payload[:size], attestor="tpm") for size in sizes)
    )

    assert {answer["outcome"] for answer in answers} == {"refused"}
    assert await bench.fetch("SELECT DISTINCT reason FROM refusals") == [("malformed",)]


def _answer_in(payload: bytes) -> Any:  # noqa: ANN401 - a TpmAnswer
    from watchword.handlers.attestors.tpm.evidence import TpmEvidence  # noqa: PLC0415

    return TpmEvidence.decode(payload).answer


async def test_enrolled_chip_may_have_to_wait_for_its_first_join(bench: Bench) -> None:
    """A list from a supplier says which chips were sold, and a person which machine stands where."""
    prover, machine = await enrolled(bench), bench.machine()
    await bench.fetch("UPDATE tpm_endorsements SET approval = true")
    waits = await join(bench, machine, prover)
    assert waits["deferred"]["type"] == "approval"
    assert await bench.one("SELECT count(*) FROM nodes") == 0

    await approve_all(bench)
    assert (await join(bench, machine, prover))["outcome"] == "joined"
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_known_nodes_key_with_another_chip_is_refused(bench: Bench) -> None:
    """Who copies a node's disk into another machine has its key and not its chip; the node is not touched."""
    key = ec.generate_private_key(ec.SECP256R1())
    first = await enrolled(bench)
    assert (await join(bench, Machine(bench.seal_to, key), first))["outcome"] == "joined"
    before = await bench.fetch(NODES)

    other = await enrolled(bench)
    copies = [Machine(bench.seal_to, key) for _ in range(20)]
    answers = await asyncio.gather(*(join(bench, copy, other) for copy in copies))
    assert {answer["outcome"] for answer in answers} == {"refused"}
    assert await bench.fetch("SELECT DISTINCT attestor || ':' || reason FROM refusals") == [
        ("join:key-in-use",)
    ]
    # Nor does its attestation key help, which is in another chip.
    other.tpm.ak, other.tpm.ak_key = first.tpm.ak, first.tpm.ak_key
    other.changes = {"secret": bytes(32)}
    refused = await asyncio.gather(*(join(bench, bench.machine(), other) for _ in range(20)))
    assert {answer["outcome"] for answer in refused} == {"refused"}
    assert await last_reason(bench) == "tpm:activation"
    assert await bench.fetch(NODES) == before
