"""A node renews its certificate: for a new key, with what it was granted, once."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from tests.support.crypto import STATEMENT, NodeKey
from tests.support.joins import Machine, certificate_of, join_bench, keys
from tests.support.renewals import (
    Node,
    explained,
    joined,
    keys_of_all_kinds,
    reasons,
    renewed,
    types,
)
from watchword.handlers.service import JoinClock

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("key", keys_of_all_kinds(), ids=["p256", "p384", "ed25519"])
async def test_renewal_gives_a_certificate_for_the_new_key_and_carries_the_grant_on(
    database: str, key: NodeKey
) -> None:  # fmt: skip
    """A node that was let in once must stay in, as what it was let in, without anybody's help."""
    async with join_bench(database) as bench:
        node = await joined(
            bench, key=key, pool="db", site="berlin", role="site", allowed_kinds=["logs.collect"]
        )
        machine = bench.machine()
        [answer] = await bench.ask(node.renewal(machine, role="site"))

        told = answer["joined"]
        assert (told["nodeId"], told["tenant"], told["pool"], told["site"], told["role"]) == (
            node.id, "acme", "db", "berlin", "site",
        )  # fmt: skip
        assert told["allowedKinds"] == ["logs.collect"]
        leaf = x509.load_der_x509_certificate(certificate_of(answer))
        assert leaf.public_key() == machine.key.public_key()
        assert await bench.one("SELECT state FROM nodes") == "active"
        old, new = await bench.fetch("SELECT * FROM node_certs ORDER BY issued_at")
        assert (old["is_current"], old["revoked_at"], old["renewed_by"]) == (
            False, None, new["csr_sha256"],
        )  # fmt: skip
        assert (new["is_current"], new["allowed_kinds"]) == (True, ["logs.collect"])
        assert await types(bench) == ["node.joined", "node.renewed"]
        assert await bench.one("SELECT count(*) FROM audit_log WHERE action = 'node.renew'") == 1
        await explained(database)


async def test_renewals_follow_each_other(database: str) -> None:
    """A node lives for years: hundreds of renewals, each from the last."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        for _ in range(3):
            node = await renewed(bench, node)

        assert await bench.one("SELECT version FROM nodes") == 4
        assert await bench.one("SELECT count(*) FROM node_certs WHERE is_current") == 1
        await explained(database)


async def test_same_renewal_again_gets_the_same_certificate(database: str) -> None:
    """The answer was lost: neither the same bytes nor a new request for the same CSR may cost the node its place."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        machine = bench.machine()
        request = node.renewal(machine)
        [first] = await bench.ask(request)
        again, other, twin = await bench.ask(request, node.renewal(machine), request)

        assert first["joined"] == again["joined"] == other["joined"] == twin["joined"]
        assert await types(bench) == ["node.joined", "node.renewed"]


def _other(node: Node, other: Node, machine: Machine) -> dict[str, Any]:
    del node, machine
    return {"signs": other.key}


WRONG: dict[str, tuple[Callable[[Node, Node, Machine], dict[str, Any]], str]] = {
    "unknown certificate": (lambda *_: {"tbs_sha256": b"u" * 32}, "renew:unknown-certificate"),
    "another tenant's certificate": (
        lambda _, other, __: {"tbs_sha256": other.tbs_sha256},
        "renew:signature",
    ),
    "another node's key": (_other, "renew:signature"),
    "CSR swapped": (lambda *_: {"csr_sha256": b"c" * 32}, "renew:signature"),
    "another request": (
        lambda *_: {"signed_id": "01901f3d-8694-739b-aea5-966c26f8ad91"},
        "renew:signature",
    ),
    "no evidence": (lambda *_: {"payload": b""}, "renew:malformed"),
    "another role": (lambda *_: {"role": "site"}, "renew:wrong-role"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_wrong_renewal_is_refused_like_everything_else(database: str, what: str) -> None:
    """Whoever lacks the certificate's key gets nothing, and learns nothing."""
    changes, reason = WRONG[what]
    async with join_bench(database) as bench:
        node, other = await joined(bench), await joined(bench, tenant="globex")
        machine = bench.machine()
        [answer] = await bench.ask(node.renewal(machine, **changes(node, other, machine)))

        assert answer["refused"] == {"code": "ACCESS_DENIED", "message": "Join refused"}
        assert await reasons(bench) == [reason]
        assert await types(bench) == ["node.joined", "node.joined", "security.join.refused"]
        # A tenant's stream gets it only if the certificate's own key has signed.
        tenant = await bench.one("SELECT tenant FROM refusals")
        assert tenant == ("acme" if reason == "renew:wrong-role" else "root")
        assert await bench.one("SELECT count(*) FROM node_certs WHERE is_current") == 2


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"attestor": "join-token"}, id="through an attestor"),
        pytest.param({"state": b"s" * 32}, id="as an answer to a challenge"),
    ],
)
async def test_renewal_in_another_envelope_is_unsupported(
    database: str, changes: dict[str, Any]
) -> None:
    """There is one form of a renewal; anything else is another release's, or nonsense."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        [answer] = await bench.ask(node.renewal(bench.machine(), **changes))

        assert answer["failed"] == {"code": "UNSUPPORTED"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("UPDATE nodes SET state = 'evicted'", "renew:node-state"),
        ("UPDATE nodes SET state = 'banned'", "renew:node-state"),
        ("UPDATE nodes SET state = 'retired'", "renew:node-state"),
        ("UPDATE nodes SET state = 'deleted'", "renew:node-state"),
        ("UPDATE node_certs SET revoked_at = now(), revoked_why = 'test'", "renew:revoked"),
        ("UPDATE node_certs SET not_after = now()", "renew:expired"),
        ("UPDATE node_certs SET is_current = false", "renew:superseded"),
    ],
)
async def test_certificate_that_counts_no_more_renews_nothing(
    database: str, script: str, reason: str
) -> None:
    """Eviction, revocation and expiry would be words only, if a node could renew out of them."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await bench.run(script)
        [answer] = await bench.ask(node.renewal(bench.machine()))

        assert answer["outcome"] == "refused"
        assert await reasons(bench) == [reason]


async def test_certificate_expires_by_the_services_clock(database: str) -> None:
    """A machine's clock is worth nothing; a certificate ends when the service says so."""
    crypto, clock = keys(), JoinClock(lifetime=timedelta(hours=1))
    async with join_bench(database, crypto=crypto, clock=clock) as bench:
        node = await joined(bench)
        name = await bench.one("SELECT current_database()")
        await bench.run(f"ALTER DATABASE \"{name}\" SET watchword.clock_shift = '2 hours'")
    async with join_bench(database, crypto=crypto, clock=clock) as later:
        [answer] = await later.ask(node.renewal(later.machine()))

        assert answer["outcome"] == "refused"
        assert await reasons(later) == ["renew:expired"]


async def test_key_statement_holds_for_the_very_key_only(database: str) -> None:
    """The statement says that this key is in a TPM: nobody has said so of another one."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await bench.fetch("UPDATE node_certs SET node_key_uri = $1", STATEMENT)
        await bench.fetch("UPDATE nodes SET node_key_uri = $1", STATEMENT)
        [refused] = await bench.ask(node.renewal(bench.machine()))
        [answer] = await bench.ask(node.renewal(Machine(bench.seal_to, key=node.key)))

        assert refused["outcome"] == "refused"
        assert await reasons(bench) == ["renew:key-statement-unknown"]
        leaf = x509.load_der_x509_certificate(certificate_of(answer))
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert STATEMENT in names.get_values_for_type(x509.UniformResourceIdentifier)


async def test_statement_that_the_crypto_does_not_know_is_not_renewed(database: str) -> None:
    """Another form of statement may have come from another release; this one cannot prove it again."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        await bench.run("UPDATE node_certs SET node_key_uri = 'urn:other:statement'")
        [answer] = await bench.ask(node.renewal(Machine(bench.seal_to, key=node.key)))

        assert answer["outcome"] == "refused"
        assert await reasons(bench) == ["renew:key-statement-unknown"]


async def test_key_of_another_node_is_not_renewed_to(database: str) -> None:
    """Two nodes with one key could not be told apart, nor banned apart."""
    async with join_bench(database) as bench:
        node, other = await joined(bench), await joined(bench)
        [answer] = await bench.ask(node.renewal(Machine(bench.seal_to, key=other.key)))

        assert answer["outcome"] == "refused"
        assert await reasons(bench) == ["join:key-in-use"]


async def test_second_key_from_one_certificate_evicts_the_node(database: str) -> None:
    """The key is in two hands, and nobody can say which of them is the node's."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        thief = await renewed(bench, node)
        [answer] = await bench.ask(node.renewal(bench.machine()))

        assert answer["refused"] == {"code": "ACCESS_DENIED", "message": "Join refused"}
        assert await bench.one("SELECT state FROM nodes") == "evicted"
        assert await bench.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NULL") == 0
        assert await types(bench) == [
            "node.joined",
            "node.renewed",
            "node.key.conflict",
            "node.evicted",
            "node.certificate.revoked",
            "node.certificate.revoked",
            "security.join.refused",
        ]
        # Neither goes on, and nothing more is told.
        for holder in (node, thief):
            [answer] = await bench.ask(holder.renewal(bench.machine()))
            assert answer["outcome"] == "refused"
        assert (await types(bench)).count("node.key.conflict") == 1
        assert await reasons(bench) == ["renew:key-conflict", *["renew:node-state"] * 2]
        await explained(database)


async def test_two_keys_in_one_batch_are_theft_too(database: str) -> None:
    """It must not matter whether both arrive a day or a millisecond apart."""
    async with join_bench(database) as bench:
        node = await joined(bench)
        answers = await bench.ask(*(node.renewal(bench.machine()) for _ in range(3)))

        assert [answer["outcome"] for answer in answers] == ["joined", "refused", "refused"]
        assert await bench.one("SELECT state FROM nodes") == "evicted"
        assert sorted(await reasons(bench)) == ["renew:key-conflict", "renew:node-state"]
        await explained(database)


async def test_deployment_may_only_want_to_be_told(database: str) -> None:
    """Where a copied image is an everyday mistake, an eviction would do more harm than the copy."""
    async with join_bench(database, evicts_on_theft=False) as bench:
        node = await joined(bench)
        current = await renewed(bench, node)
        for _ in range(2):
            [answer] = await bench.ask(node.renewal(bench.machine()))
            assert answer["outcome"] == "refused"

        assert (await types(bench)).count("node.key.conflict") == 1
        assert await bench.one("SELECT state FROM nodes") == "active"
        await renewed(bench, current)
        await explained(database)


async def test_racing_renewals_with_two_keys_leave_no_node_with_a_thief(database: str) -> None:
    """Two workers, two keys, one moment: one of the two is recorded first, and then the other is theft."""
    crypto = keys()
    async with (
        join_bench(database, crypto=crypto) as one,
        join_bench(database, crypto=crypto, worker="w1") as two,
    ):
        # Both are connected by now: the race begins on equal terms.
        nodes = [await joined(bench) for bench in (one, two) * 4]
        first = [node.renewal(one.machine()) for node in nodes]
        second = [node.renewal(one.machine()) for node in reversed(nodes)]
        told = await asyncio.gather(one.ask(*first), two.ask(*second))

        outcomes = [answer["outcome"] for answers in told for answer in answers]
        assert outcomes.count("joined") == outcomes.count("refused") == len(nodes)
        assert await one.one("SELECT count(*) FROM nodes WHERE state = 'evicted'") == len(nodes)
        assert await one.one("SELECT count(*) FROM node_certs WHERE revoked_at IS NULL") == 0
        assert set(await reasons(one)) == {"renew:key-conflict"}
        await explained(database)


async def test_renewal_that_races_with_a_re_key_wins_or_is_refused(database: str) -> None:
    """A node is re-keyed while it renews: one certificate is current in the end, whoever was first."""
    crypto = keys()
    async with (
        join_bench(database, crypto=crypto) as one,
        join_bench(database, crypto=crypto, worker="w1") as two,
    ):
        # Both are connected by now: the race begins on equal terms.
        nodes = [await joined(bench) for bench in (one, two) * 4]
        tokens = [await one.token(expect={"node": node.id}, allow_reclaim=True) for node in nodes]
        renewals = [node.renewal(one.machine()) for node in nodes]
        rekeys = [one.machine().request(token.payload) for token in reversed(tokens)]
        told = await asyncio.gather(one.ask(*renewals), two.ask(*rekeys))

        assert all(answer["outcome"] == "joined" for answer in told[1])
        assert await one.one("SELECT count(*) FROM node_certs WHERE is_current") == len(nodes)
        assert set(await reasons(one)) <= {"renew:revoked"}
        assert await one.one("SELECT count(*) FROM nodes WHERE state = 'evicted'") == 0
        await explained(database)
