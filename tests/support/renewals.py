"""Nodes that renew: the current key and certificate, and requests of kind `renew`."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from uuid_utils.compat import uuid7

from tests.support.crypto import NodeKey, spki_of
from tests.support.joins import Bench, Machine, certificate_of
from watchword.handlers.crypto.renewals import RenewalEvidence, sign, signed_text
from watchword.handlers.crypto.sealing import UNSEALED, seal_evidence
from watchword.handlers.store.connection import Database
from watchword.handlers.store.rebuild import check
from watchword.schemas.canonical import b64
from watchword.schemas.ids import Role
from watchword.schemas.requests import JoinRequest


@dataclass
class Node:
    """A node with its current key and certificate."""

    id: str
    key: NodeKey
    certificate: bytes

    @classmethod
    def of(cls, machine: Machine, answer: dict[str, Any]) -> "Node":
        """Return the node that an answer made of a machine."""
        assert answer["outcome"] == "joined", answer
        return cls(answer["joined"]["nodeId"], machine.key, certificate_of(answer))

    @property
    def tbs_sha256(self) -> bytes:
        """What names the current certificate."""
        leaf = x509.load_der_x509_certificate(self.certificate)
        return sha256(leaf.tbs_certificate_bytes).digest()

    def renewal(  # noqa: PLR0913 - what may be wrong with it
        self,
        machine: Machine,
        *,
        signs: NodeKey | None = None,
        tbs_sha256: bytes | None = None,
        csr_sha256: bytes | None = None,
        signed_id: str | None = None,
        request_id: str | None = None,
        payload: bytes | None = None,
        role: Role = "node",
        attestor: str = "renew",
        state: bytes | None = None,
    ) -> bytes:
        """Return the request for the machine's key; the options say what is wrong with it."""
        request_id = request_id or str(uuid7())
        named = tbs_sha256 or self.tbs_sha256
        csr = sha256(machine.csr).digest()
        text = signed_text(named, csr_sha256 or csr, signed_id or request_id)
        key = signs or self.key
        assert not isinstance(key, rsa.RSAPrivateKey)
        evidence = RenewalEvidence(named, spki_of(key), sign(key, text)).encode()
        unsealed = JoinRequest(
            version=1,
            kind="renew",
            request_id=request_id,
            attestor=attestor,
            role=role,
            csr=b64(machine.csr),
            encryption_key_id=machine.key_id,
            sealed=UNSEALED,
            state=None if state is None else b64(state),
            reply_key=None,
        )
        shown = evidence if payload is None else payload
        return seal_evidence(unsealed, machine.seal_to, shown).write()


async def joined(bench: Bench, *, key: NodeKey | None = None, **token: Any) -> Node:  # noqa: ANN401 - a token's columns
    """Return a node that has just joined with a fresh token."""
    made = await bench.token(**token)
    machine = Machine(bench.seal_to, key=key or ec.generate_private_key(ec.SECP256R1()))
    [answer] = await bench.ask(machine.request(made.payload, role=token.get("role", "node")))
    return Node.of(machine, answer)


async def renewed(bench: Bench, node: Node) -> Node:
    """Renew a node and return what it is now."""
    machine = bench.machine()
    [answer] = await bench.ask(node.renewal(machine))
    return Node.of(machine, answer)


def keys_of_all_kinds() -> list[Any]:
    """Return a fresh key of each kind that the agent makes."""
    return [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        Ed25519PrivateKey.generate(),
    ]


async def explained(dsn: str) -> None:
    """Fail if the journal does not explain the tables."""
    database = Database(dsn, application_name="test")
    try:
        found = await check(database)
    finally:
        await database.close()
    assert found.problems == []
    # Places and tokens of these tests are made by plain SQL.
    made_by_hand = {"tenants", "pools", "sites", "tokens"}
    assert [d for d in found.differences if d.table not in made_by_hand] == []


async def reasons(bench: Bench) -> list[str]:
    """Return the refusals so far, oldest first."""
    rows = await bench.fetch("SELECT attestor || ':' || reason FROM refusals ORDER BY id")
    return [row[0] for row in rows]


async def types(bench: Bench) -> list[str]:
    """Return the types of the journal's events, in order."""
    return [row[0] for row in await bench.fetch("SELECT type FROM journal ORDER BY seq")]
