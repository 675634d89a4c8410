"""tpm on a real service: how a machine has to have booted, and how it proves that it has."""

import secrets
from collections.abc import AsyncGenerator
from hashlib import sha256
from typing import Any

import pytest

from tests.support.joins import Bench
from tests.support.proving import ban, join, last_reason
from tests.support.tpm import SPEC_ID, Maker, SoftTpm, measured, set_policy
from tests.support.tpm_service import NODES, PCRS, POLICY, VALUE, enrolled, tpm_service

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


@pytest.mark.case("B47")
async def test_recorded_quote_is_refused_under_a_new_challenge(bench: Bench) -> None:
    """Yesterday's quote says how the machine was yesterday."""
    prover, machine = await enrolled(bench), bench.machine()
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
    prover = await enrolled(bench)
    prover.changes = bend
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == f"tpm:{reason}"


async def test_value_that_is_not_listed_is_refused(bench: Bench) -> None:
    """Another boot than the ones that an operator has listed."""
    prover = await enrolled(bench)
    prover.tpm.pcrs[4] = b"\x22" * 32
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:pcr-mismatch"


@pytest.mark.case("B50")
async def test_pcrs_beside_the_policy_are_not_judged(bench: Bench) -> None:
    """Operating systems extend PCRs 9 and 11 as they like."""
    prover = await enrolled(bench)
    prover.tpm.pcrs[9] = b"\x99" * 32
    prover.pcrs = [*PCRS, 9, 11]
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    prover.pcrs = PCRS[:-1]
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:quote"


@pytest.mark.case("B46")
async def test_weak_bank_is_told_from_a_mismatch(bench: Bench) -> None:
    """An old chip with SHA-1 alone is no attack; it joins only where the policy says the word."""
    prover = await enrolled(bench, SoftTpm(bank="sha1"))
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:bank-weak"

    values = {str(n): ["11" * 20] for n in PCRS}
    await set_policy(bench, {**POLICY, "banks": ["unsafe_sha1"], "values": {"unsafe_sha1": values}})
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"


@pytest.mark.case("B51")
@pytest.mark.parametrize("log", [b"", bytes(4096)])
async def test_absent_log_under_each_policy(bench: Bench, log: bytes) -> None:
    """Some virtual machines have no log, or one of zeros; PCR values can be judged without."""
    prover = await enrolled(bench)
    prover.log = log
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    await set_policy(bench, {**POLICY, "log": "required"})
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:log-absent"


async def test_log_is_judged_by_the_quote_and_its_events_by_rules(bench: Bench) -> None:
    """The log is the machine's word until it leads to the quoted values; then its events count."""
    digest = sha256(b"secure boot is on").digest()
    prover = await enrolled(bench)
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
    prover = await enrolled(bench)
    await set_policy(bench, policy)
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:policy"


async def test_pool_without_a_policy_admits_nobody(bench: Bench) -> None:
    """A new pool is closed to TPMs until somebody says what they have to show."""
    prover = await enrolled(bench)
    await bench.fetch("DELETE FROM tpm_policies")
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:policy"


FIRST_SEEN: dict[str, Any] = {
    "pcrs": [0, 7],
    "banks": ["sha256"],
    "log": "ignored",
    "unsafe_first_seen": True,
}


async def test_values_first_seen_of_a_node_are_the_ones_that_it_keeps(bench: Bench) -> None:
    """The first boot is taken on trust, and written down with the node; another boot is another machine's."""
    prover = await enrolled(bench)
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
    other = await enrolled(bench)
    other.tpm.pcrs[7] = b"\x55" * 32
    assert (await join(bench, bench.machine(), other))["outcome"] == "joined"
    assert await bench.one("SELECT count(*) FROM nodes") == 2


async def test_values_of_a_refused_join_are_not_the_first_seen(bench: Bench) -> None:
    """They are written in the transaction of the admission, or not at all."""
    prover = await enrolled(bench)
    await set_policy(bench, FIRST_SEEN)
    await ban(bench, "ek", sha256(prover.tpm.ek[2:]).hexdigest())
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await bench.one("SELECT count(*) FROM node_subjects") == 0

    await bench.fetch("DELETE FROM bans")
    prover.tpm.pcrs[0] = b"\x44" * 32
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"


@pytest.mark.case("B53")
async def test_bad_quote_of_a_node_costs_it_nothing_but_this_join(bench: Bench) -> None:
    """A refusal is counted and told; the node and its certificate stay, and the next good quote is taken."""
    prover = await enrolled(bench)
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
    before = await bench.fetch(NODES)
    prover.changes = {"values": b"\x22" * 32 * 6}
    assert (await join(bench, bench.machine(), prover))["outcome"] == "refused"
    assert await last_reason(bench) == "tpm:quote"
    assert await bench.fetch(NODES) == before
    assert await bench.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NOT NULL") == 0

    prover.changes = {}
    assert (await join(bench, bench.machine(), prover))["outcome"] == "joined"
