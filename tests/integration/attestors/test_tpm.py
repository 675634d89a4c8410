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
from tests.support.joins import Bench, Machine, certificate_of, join_bench
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
from tests.support.tpm import (
    SIGNING,
    SPEC_ID,
    STORAGE,
    Maker,
    SoftProver,
    SoftTpm,
    area,
    enrol,
    measured,
    new_key,
    set_policy,
)
from watchword.handlers.attestors.tpm.certificates import read_certificate
from watchword.handlers.attestors.tpm.config import Config, WaitingRoom
from watchword.handlers.attestors.tpm.endorsement import Anchors
from watchword.handlers.attestors.tpm.evidence import Certification
from watchword.handlers.attestors.tpm.verifier import TpmAttestor
from watchword.schemas.ids import TenantId

pytestmark = pytest.mark.postgres

PCRS = [0, 1, 2, 3, 4, 7]
VALUE = "11" * 32
POLICY: dict[str, Any] = {
    "pcrs": PCRS,
    "banks": ["sha256"],
    "log": "ignored",
    "values": {"sha256": {str(n): [VALUE] for n in PCRS}},
}


@pytest.fixture(scope="module")
def maker() -> Maker:
    """Give a vendor whose root is trusted."""
    return Maker()


@pytest.fixture
async def bench(database: str, maker: Maker) -> AsyncGenerator[Bench]:
    """Give a service where only enrolled TPMs get in."""
    attestor = TpmAttestor(Config(Anchors.of([read_certificate(maker.root)])))
    async with join_bench(database, attestors=[attestor]) as bench:
        await bench.place("acme", "web")
        await set_policy(bench, POLICY)
        yield bench


@pytest.fixture
async def waiting(database: str, maker: Maker) -> AsyncGenerator[Bench]:
    """Give a service where a genuine TPM that nobody enrolled may ask an operator."""
    room = WaitingRoom(TenantId("acme"), "web", allowed_kinds=("diag.*",))
    attestor = TpmAttestor(Config(Anchors.of([read_certificate(maker.root)]), room))
    async with join_bench(database, attestors=[attestor]) as bench:
        await bench.place("acme", "web")
        await set_policy(bench, POLICY)
        yield bench


async def _enrolled(bench: Bench, tpm: SoftTpm | None = None) -> SoftProver:
    tpm = tpm or SoftTpm()
    await enrol(bench, tpm)
    return SoftProver(tpm)


@pytest.mark.case("B43")
@pytest.mark.parametrize("ek", ["rsa2048", "p256", "p384"])
@pytest.mark.parametrize(
    ("ak", "scheme"),
    [("rsa2048", "rsassa"), ("rsa2048", "rsapss"), ("p256", "ecdsa"), ("p384", "ecdsa")],
)
async def test_every_pair_of_keys_joins(bench: Bench, ek: str, ak: str, scheme: str) -> None:
    """Chips have RSA or ECC endorsement keys, and make attestation keys of either kind."""
    prover = await _enrolled(bench, SoftTpm(ek, ak, scheme))
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
    prover = await _enrolled(bench, SoftTpm("p256", "rsa2048", "rsapss"))
    prover.tpm.salt = 256 - 32 - 2
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    prover.tpm.salt = 20
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:quote"


async def test_challenge_leaves_no_row_and_is_fresh(bench: Bench) -> None:
    """Whoever knows a public key may ask as often as they like; it costs no space."""
    request = await first_request(bench.machine(), await _enrolled(bench))
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
    prover = await _enrolled(bench)
    machine = bench.machine()
    [challenged] = await bench.ask(await first_request(machine, prover))
    prover.changes = {"secret": secrets.token_bytes(32)}
    [answer] = await bench.ask(await next_request(machine, prover, challenged))

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:activation"


async def test_challenge_belongs_to_the_csr_and_to_the_keys(bench: Bench) -> None:
    """What round one hands out is worth nothing to another machine, nor with another attestation key."""
    prover = await _enrolled(bench)
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


@pytest.mark.case("B47")
async def test_recorded_quote_is_refused_under_a_new_challenge(bench: Bench) -> None:
    """Yesterday's quote says how the machine was yesterday."""
    prover, machine = await _enrolled(bench), bench.machine()
    old = prover.tpm.quote(secrets.token_bytes(32), PCRS)
    prover.changes = {"quote": old, "signature": prover.tpm.sign(old)}
    assert (await join(bench, machine, prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:stale"


@pytest.mark.parametrize(
    ("bend", "reason"),
    [
        ({"signature": b"\0\x18\0\x0b\0\1\1\0\1\1"}, "quote"),
        ({"quote": b"\xff\x54\x43\x47"}, "malformed"),
        ({"values": b"\x11" * 32 * 5}, "quote"),
        ({"values": b"\x22" * 32 * 6}, "quote"),
    ],
)
async def test_bent_quote_is_refused(bench: Bench, bend: dict[str, Any], reason: str) -> None:
    """Signature, structure and values each count."""
    prover = await _enrolled(bench)
    prover.changes = bend
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == f"tpm:{reason}"


async def test_value_that_is_not_listed_is_refused(bench: Bench) -> None:
    """Another boot than the ones that an operator has listed."""
    prover = await _enrolled(bench)
    prover.tpm.pcrs[4] = b"\x22" * 32
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:pcr-mismatch"


@pytest.mark.case("B50")
async def test_pcrs_beside_the_policy_are_not_judged(bench: Bench) -> None:
    """Operating systems extend PCRs 9 and 11 as they like."""
    prover = await _enrolled(bench)
    prover.tpm.pcrs[9] = b"\x99" * 32
    prover.pcrs = [*PCRS, 9, 11]
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    prover.pcrs = PCRS[:-1]
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:quote"


@pytest.mark.case("B46")
async def test_weak_bank_is_told_from_a_mismatch(bench: Bench) -> None:
    """An old chip with SHA-1 alone is no attack; it joins only where the policy says the word."""
    prover = await _enrolled(bench, SoftTpm(bank="sha1"))
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:bank-weak"

    values = {str(n): ["11" * 20] for n in PCRS}
    await set_policy(bench, {**POLICY, "banks": ["unsafe_sha1"], "values": {"unsafe_sha1": values}})
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"


@pytest.mark.case("B51")
@pytest.mark.parametrize("log", [b"", bytes(4096)])
async def test_absent_log_under_each_policy(bench: Bench, log: bytes) -> None:
    """Some virtual machines have no log, or one of zeros; PCR values can be judged without."""
    prover = await _enrolled(bench)
    prover.log = log
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    await set_policy(bench, {**POLICY, "log": "required"})
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:log-absent"


async def test_log_is_judged_by_the_quote_and_its_events_by_rules(bench: Bench) -> None:
    """The log is the machine's word until it leads to the quoted values; then its events count."""
    digest = sha256(b"secure boot is on").digest()
    prover = await _enrolled(bench)
    prover.log = SPEC_ID + measured(7, 0x80000001, digest, b"SecureBoot")
    prover.tpm.pcrs[7] = sha256(bytes(32) + digest).digest()
    rule = {"pcr": 7, "digest": digest.hex()}
    policy = {"pcrs": [7], "banks": ["sha256"], "log": "required", "require": [rule]}

    async def reason() -> str:
        answer = await join(bench, bench.machine(), prover)
        return "joined" if answer["outcome"] == "joined" else await last_reason(bench)

    await set_policy(bench, policy)
    assert await reason() == "joined"
    await set_policy(bench, {**policy, "require": [{**rule, "kind": 0x80000001}]})
    assert await reason() == "joined"
    await set_policy(bench, {**policy, "forbid": [rule]})
    assert await reason() == "tpm:event-forbidden"
    other = sha256(b"secure boot is really on").digest()
    await set_policy(bench, {**policy, "require": [{**rule, "digest": other.hex()}]})
    assert await reason() == "tpm:event-missing"
    # An event that extends nothing is in no quote: whoever writes the log can write it.
    before = prover.log
    prover.log += measured(7, 3, other, b"")
    assert await reason() == "tpm:event-missing"
    prover.log = before
    await set_policy(bench, policy)
    prover.log += measured(7, 1, digest, b"")
    assert await reason() == "tpm:log-mismatch"
    prover.log = prover.log[:-1]
    assert await reason() == "tpm:log-malformed"


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {**POLICY, "pcrs": []},
        {**POLICY, "banks": []},
        {**POLICY, "banks": ["sha1"]},
        {**POLICY, "banks": ["sha256", "sha384"]},
        {**POLICY, "values": {}},
        {**POLICY, "values": {"sha256": {"0": []}}},
        {**POLICY, "values": {"sha256": {"23": [VALUE]}}},
        {**POLICY, "log": "maybe"},
        {**POLICY, "pcrs": [24]},
        {**POLICY, "pcrs": [True]},
        {**POLICY, "pcrs": [2**60]},
        {**POLICY, "surprise": 1},
        {**POLICY, "require": [{"pcr": 7, "digest": VALUE}]},
        {**POLICY, "log": "required", "require": [{"pcr": 7, "kind": 1}]},
        {**POLICY, "log": "required", "forbid": [{"pcr": 7, "kind": 1, "digest": VALUE}]},
    ],
)
async def test_policy_that_cannot_be_read_admits_nobody(
    bench: Bench, policy: dict[str, Any]
) -> None:
    """Whatever is missing, unknown or empty closes the door, and no boot is taken by oversight."""
    prover = await _enrolled(bench)
    await set_policy(bench, policy)
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:policy"


async def test_pool_without_a_policy_admits_nobody(bench: Bench) -> None:
    """A new pool is closed to TPMs until somebody says what they have to show."""
    prover = await _enrolled(bench)
    await bench.fetch("DELETE FROM tpm_policies")
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:policy"


async def test_key_statement_needs_a_certification_of_the_csrs_key(bench: Bench) -> None:
    """The certificate says `tpm-ak` only if the key in it is in that TPM."""
    prover = await _enrolled(bench)
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
    prover = await _enrolled(bench)
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
    prover = await _enrolled(bench)
    answers = await asyncio.gather(*(join(bench, bench.machine(), prover) for _ in range(20)))

    assert "joined" in {answer["outcome"] for answer in answers}
    assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_revoked_banned_and_wrong_role_are_refused(bench: Bench) -> None:
    """An operator's word against a chip counts, whatever the chip proves."""
    prover = await _enrolled(bench)
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
    prover = await _enrolled(bench)
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


FIRST_SEEN: dict[str, Any] = {
    "pcrs": [0, 7],
    "banks": ["sha256"],
    "log": "ignored",
    "unsafe_first_seen": True,
}


async def test_values_first_seen_of_a_node_are_the_ones_that_it_keeps(bench: Bench) -> None:
    """The first boot is taken on trust, and written down with the node; another boot is another machine's."""
    prover = await _enrolled(bench)
    await set_policy(bench, FIRST_SEEN)
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    before = prover.tpm.pcrs[7]
    prover.tpm.pcrs[7] = b"\x77" * 32
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:pcr-changed"

    # An update that was announced is listed for the pool; what was seen first stays good.
    await set_policy(bench, {**FIRST_SEEN, "values": {"sha256": {"7": ["77" * 32]}}})
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    prover.tpm.pcrs[7] = before
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    # Another node has values of its own.
    other = await _enrolled(bench)
    other.tpm.pcrs[7] = b"\x55" * 32
    assert (await join(bench, bench.machine(), other))["outcome"] == "joined"
    assert await bench.one("SELECT count(*) FROM nodes") == 2


async def test_values_of_a_refused_join_are_not_the_first_seen(bench: Bench) -> None:
    """They are written in the transaction of the admission, or not at all."""
    prover = await _enrolled(bench)
    await set_policy(bench, FIRST_SEEN)
    await ban(bench, "ek", sha256(prover.tpm.ek[2:]).hexdigest())
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await bench.one("SELECT count(*) FROM node_subjects") == 0

    await bench.fetch("DELETE FROM bans")
    prover.tpm.pcrs[0] = b"\x44" * 32
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"


async def test_enrolled_chip_may_have_to_wait_for_its_first_join(bench: Bench) -> None:
    """A list from a supplier says which chips were sold, and a person which machine stands where."""
    prover, machine = await _enrolled(bench), bench.machine()
    await bench.fetch("UPDATE tpm_endorsements SET approval = true")
    waits = await join(bench, machine, prover)
    assert waits["deferred"]["type"] == "approval"
    assert await bench.one("SELECT count(*) FROM nodes") == 0

    await approve_all(bench)
    assert (await join(bench, machine, prover))["outcome"] == "joined"
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    assert await bench.one("SELECT count(*) FROM nodes") == 1


_NODE = "SELECT to_jsonb(n)::text FROM nodes n ORDER BY id"


async def test_known_nodes_key_with_another_chip_is_refused(bench: Bench) -> None:
    """Who copies a node's disk into another machine has its key and not its chip; the node is not touched."""
    key = ec.generate_private_key(ec.SECP256R1())
    first = await _enrolled(bench)
    assert (await join(bench, Machine(bench.seal_to, key), first))["outcome"] == "joined"
    before = await bench.fetch(_NODE)

    other = await _enrolled(bench)
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
    assert await bench.fetch(_NODE) == before


@pytest.mark.case("B53")
async def test_bad_quote_of_a_node_costs_it_nothing_but_this_join(bench: Bench) -> None:
    """A refusal is counted and told; the node and its certificate stay, and the next good quote is taken."""
    prover = await _enrolled(bench)
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    before = await bench.fetch(_NODE)
    prover.changes = {"values": b"\x22" * 32 * 6}
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:quote"
    assert await bench.fetch(_NODE) == before
    assert await bench.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NOT NULL") == 0

    prover.changes = {}
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
