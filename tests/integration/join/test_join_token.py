"""A machine with a join token becomes a node, once."""

import pytest
from cryptography import x509

from tests.support.joins import certificate_of, join_bench

pytestmark = pytest.mark.postgres


async def test_token_admits_a_machine_in_one_transaction(database: str) -> None:
    """Node, certificate, spend, audit row, event and inbox row are there together."""
    async with join_bench(database) as bench:
        token = await bench.token(uses=2)
        [answer] = await bench.ask(bench.machine().request(token.payload))

        assert answer["outcome"] == "joined"
        node_id = answer["joined"]["nodeId"]
        certificate = x509.load_der_x509_certificate(certificate_of(answer))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
            f"spiffe://fleet.example/tenant/acme/node/{node_id}"
        ]
        assert await bench.one("SELECT uses_left FROM tokens WHERE id = $1", token.id) == 1
        assert str(await bench.one("SELECT id FROM nodes")) == node_id
        assert await bench.one("SELECT der FROM node_certs") == certificate_of(answer)
        assert (
            await bench.one(
                "SELECT count(*) FROM journal WHERE type = 'node.joined' AND key = $1",
                node_id.encode(),
            )
            == 1
        )
        assert await bench.one("SELECT outcome FROM inbox") == 1
        assert await bench.one("SELECT count(*) FROM audit_log WHERE action = 'node.join'") == 1


async def test_same_bytes_again_get_the_same_outcome(database: str) -> None:
    """A redelivery must not spend twice, nor answer with another certificate."""
    async with join_bench(database) as bench:
        token = await bench.token(uses=5)
        request = bench.machine().request(token.payload)
        [first] = await bench.ask(request)
        again, twin = await bench.ask(request, request)

        assert first["joined"] == again["joined"] == twin["joined"]
        assert await bench.one("SELECT uses_left FROM tokens") == 4
        assert await bench.one("SELECT count(*) FROM nodes") == 1


async def test_same_csr_in_other_bytes_gets_the_same_admission(database: str) -> None:
    """An agent that lost the answer asks anew with its CSR and must not be locked out or doubled."""
    async with join_bench(database) as bench:
        token = await bench.token(uses=5)
        machine = bench.machine()
        first, second = await bench.ask(
            machine.request(token.payload), machine.request(token.payload)
        )
        [third] = await bench.ask(machine.request(token.payload))

        assert first["joined"]["nodeId"] == second["joined"]["nodeId"] == third["joined"]["nodeId"]
        assert certificate_of(first) == certificate_of(second) == certificate_of(third)
        assert await bench.one("SELECT uses_left FROM tokens") == 4
        assert await bench.one("SELECT count(*) FROM journal WHERE type = 'node.joined'") == 1


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param("secret", "join-token:bad-secret", id="wrong secret"),
        pytest.param("unknown", "join-token:unknown-token", id="unknown token"),
        pytest.param("payload", "join-token:malformed", id="no token"),
        pytest.param("role", "join-token:wrong-role", id="wrong role"),
        pytest.param("used", "join-token:used-up", id="used up"),
        pytest.param("revoked", "join-token:revoked", id="revoked"),
        pytest.param("expired", "join-token:expired", id="expired"),
        pytest.param("moved", "join:unseal", id="evidence moved to another CSR"),
        pytest.param("seal-role", "join:unseal", id="sealed for another role"),
        pytest.param("key", "join:sealing-key", id="sealed to an unknown key"),
    ],
)
async def test_refusal_says_nothing_outside_and_everything_inside(
    database: str, spoil: str, reason: str
) -> None:
    """The agent learns `Join refused`; the security team learns the reason, and nothing is spent."""
    async with join_bench(database) as bench:
        token = await bench.token(uses=1)
        machine = bench.machine()
        request = machine.request(token.payload)
        match spoil:
            case "secret":
                request = machine.request(token.payload[:-1] + b"\0")
            case "unknown":
                request = machine.request(token.payload.replace(token.id.encode(), b"0" * 16))
            case "payload":
                request = machine.request(b"ww1")
            case "role":
                request = machine.request(token.payload, role="site")
            case "moved":
                request = machine.request(token.payload, csr=_csr_text(bench.machine().csr))
            case "seal-role":
                request = machine.request(token.payload, seal_role="site")
            case "key":
                request = machine.request(token.payload, encryptionKeyId="e-9")
            case "used":
                await bench.fetch("UPDATE tokens SET uses_left = 0")
            case "revoked":
                await bench.fetch("UPDATE tokens SET revoked_at = now()")
            case "expired":
                await bench.fetch("UPDATE tokens SET expires_at = now()")
            case _:
                raise AssertionError(spoil)
        left = await bench.one("SELECT uses_left FROM tokens")
        [answer] = await bench.ask(request)

        assert answer["outcome"] == "refused"
        assert answer["refused"] == {"code": "ACCESS_DENIED", "message": "Join refused"}
        rows = await bench.fetch(
            "SELECT attestor || ':' || reason AS refusal, published FROM refusals"
        )
        assert [tuple(row) for row in rows] == [(reason, True)]
        assert await bench.one("SELECT uses_left FROM tokens") == left
        assert await bench.one("SELECT count(*) FROM nodes") == 0
        assert await bench.one("SELECT count(*) FROM admission_claims") == 0
        assert (
            await bench.one("SELECT count(*) FROM journal WHERE type = 'security.join.refused'")
            == 1
        )


def _csr_text(der: bytes) -> str:
    from base64 import b64encode  # noqa: PLC0415

    return b64encode(der).decode()


async def test_one_use_admits_one_of_a_batch(database: str) -> None:
    """Fifty machines with one use: the batch decides as if they had come one after another."""
    async with join_bench(database) as bench:
        token = await bench.token(uses=1)
        answers = await bench.ask(*[bench.machine().request(token.payload) for _ in range(50)])

        assert [a["outcome"] for a in answers] == ["joined"] + ["refused"] * 49
        assert await bench.one("SELECT uses_left FROM tokens") == 0
        assert await bench.one("SELECT count(*) FROM refusals WHERE reason = 'used-up'") == 49


async def test_key_on_another_nodes_certificate_is_refused(database: str) -> None:
    """One key is one machine's; a second node with it would be indistinguishable from the first."""
    async with join_bench(database) as bench:
        token = await bench.token(uses=5)
        machine = bench.machine()
        twin = bench.machine()
        twin.key = machine.key
        twin.csr = b""
        twin.__post_init__()
        assert twin.csr != machine.csr
        first, second = await bench.ask(machine.request(token.payload), twin.request(token.payload))

        assert [first["outcome"], second["outcome"]] == ["joined", "refused"]
        assert await bench.one("SELECT reason FROM refusals") == "key-in-use"


async def test_reclaim_rekeys_the_named_node_and_revokes_its_certificate(database: str) -> None:
    """A reinstalled machine keeps its node; its old certificate dies in the same transaction."""
    async with join_bench(database) as bench:
        token = await bench.token()
        [first] = await bench.ask(bench.machine().request(token.payload))
        node_id = first["joined"]["nodeId"]
        reclaim = await bench.token(expect={"node": node_id}, allow_reclaim=True)
        [second] = await bench.ask(bench.machine().request(reclaim.payload))

        assert second["joined"]["nodeId"] == node_id
        assert certificate_of(second) != certificate_of(first)
        rows = await bench.fetch(
            "SELECT der, is_current, revoked_at IS NOT NULL AS revoked FROM node_certs ORDER BY issued_at"
        )
        assert [tuple(row) for row in rows] == [
            (certificate_of(first), False, True),
            (certificate_of(second), True, False),
        ]
        assert await bench.one("SELECT generation FROM nodes") == 2


async def test_reclaim_reaches_only_the_tokens_own_place(database: str) -> None:
    """A token of one pool must not take over a node of another."""
    async with join_bench(database) as bench:
        token = await bench.token(pool="web")
        [first] = await bench.ask(bench.machine().request(token.payload))
        reclaim = await bench.token(
            pool="db", expect={"node": first["joined"]["nodeId"]}, allow_reclaim=True
        )
        [second] = await bench.ask(bench.machine().request(reclaim.payload))

        assert second["outcome"] == "refused"
        assert (
            await bench.one("SELECT attestor || ':' || reason FROM refusals")
            == "join-token:not-its-node"
        )
        assert await bench.one("SELECT uses_left FROM tokens WHERE id = $1", reclaim.id) == 1
        assert await bench.one("SELECT count(*) FROM node_certs WHERE is_current") == 1


async def test_admission_that_no_longer_stands_is_not_repeated(database: str) -> None:
    """A CSR whose node was evicted must not bring its certificate back."""
    async with join_bench(database) as bench:
        token = await bench.token(uses=3)
        machine = bench.machine()
        await bench.ask(machine.request(token.payload))
        await bench.fetch("UPDATE nodes SET state = 'evicted'")
        [answer] = await bench.ask(machine.request(token.payload))

        assert answer["outcome"] == "refused"
        assert await bench.one("SELECT reason FROM refusals") == "csr-reused"


async def test_ban_of_a_token_wins(database: str) -> None:
    """Bans are looked at under the lock, after everything else was good."""
    async with join_bench(database) as bench:
        from watchword.handlers.attestor import Subject  # noqa: PLC0415

        token = await bench.token(uses=3)
        subject = Subject("token", token.id)
        await bench.fetch(
            "INSERT INTO bans (subject, kind, value, banned_at, who, why) VALUES ($1, 'token', $2, now(), 'op', 'leaked')",
            subject.digest,
            subject.value,
        )
        [answer] = await bench.ask(bench.machine().request(token.payload))

        assert answer["outcome"] == "refused"
        assert await bench.one("SELECT reason FROM refusals") == "banned"
        assert await bench.one("SELECT uses_left FROM tokens") == 3


async def test_refusal_that_is_redelivered_is_recorded_once(database: str) -> None:
    """Counts are exact only if a redelivery is no second refusal."""
    async with join_bench(database) as bench:
        request = bench.machine().request(b"no token")
        [first] = await bench.ask(request)
        [second] = await bench.ask(request)

        assert first["outcome"] == second["outcome"] == "refused"
        assert await bench.one("SELECT count(*) FROM refusals") == 1
