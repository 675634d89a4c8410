"""A certificate of ours that an admission rests on is the node's current one at the commit, whenever it was read."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.certificates import pem_of_key
from tests.support.crypto import TRUST_DOMAIN
from tests.support.joins import Bench, join_bench, keys
from tests.support.proving import first_request, join, last_reason, move_clock, next_request
from tests.support.renewals import Node, joined
from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    NodeCertificate,
    NodeId,
    NodeReads,
    Role,
    Subject,
    TenantId,
)
from watchword.handlers.attestor import Node as NodeRead
from watchword.handlers.attestors.x509pop.config import Config
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor

pytestmark = pytest.mark.postgres

GRACE = timedelta(days=30)
LATER = timedelta(days=7, hours=1)


@dataclass
class Between:
    """Reads nodes as they are; somebody acts between the read of a certificate and that of its node."""

    reads: NodeReads
    act: Callable[[], Awaitable[None]]

    async def certificate(self, tbs_sha256: bytes) -> NodeCertificate | None:
        found = await self.reads.certificate(tbs_sha256)
        await self.act()
        return found

    async def get(self, node_id: UUID) -> NodeRead | None:
        return await self.reads.get(node_id)

    async def with_subject(self, subject: Subject) -> object:
        return await self.reads.with_subject(subject)

    async def with_subjects(self, subjects: object) -> object:
        return await self.reads.with_subjects(subjects)  # type: ignore[arg-type]  # handed on


class Interrupted(X509PopAttestor):
    """x509pop, with somebody quicker in between, once."""

    act: Callable[[], Awaitable[None]] | None = None

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        act, self.act = self.act, None
        if act is None:
            return await super().verify(evidence, context)
        nodes = Between(context.nodes, act)
        return await super().verify(evidence, replace(context, nodes=nodes))  # type: ignore[arg-type]  # as reads


def prover_of(node: Node) -> X509PopProver:
    pem = x509.load_der_x509_certificate(node.certificate).public_bytes(Encoding.PEM)
    return X509PopProver(lambda: pem, FileKey(lambda: pem_of_key(node.key)), TRUST_DOMAIN)


async def test_rekey_between_certificate_and_node_leaves_one_holder(database: str) -> None:
    """Two machines show one expired certificate; the second one's node is read re-keyed, its certificate before that."""
    crypto = keys()
    slow, quick = (
        Interrupted(Config(TRUST_DOMAIN, (), GRACE)),
        X509PopAttestor(Config(TRUST_DOMAIN, (), GRACE)),
    )
    async with (
        join_bench(database, attestors=[slow], crypto=crypto) as first,
        join_bench(database, attestors=[quick], crypto=crypto, worker="w1") as second,
    ):
        node = await joined(first)
        await move_clock(first, LATER)
        prover, machine = prover_of(node), first.machine()
        [challenged] = await first.ask(await first_request(machine, prover))
        answering = await next_request(machine, prover, challenged)

        async def rekey() -> None:
            answer = await join(second, second.machine(), prover)
            assert answer["outcome"] == "joined"

        slow.act = rekey
        [answer] = await first.ask(answering)

        assert answer["outcome"] == "refused"
        assert await last_reason(first) == "x509pop:superseded"
        assert await first.one("SELECT generation FROM nodes") == 2
        assert await first.one("SELECT count(*) FROM node_certs WHERE is_current") == 1


@dataclass
class Namer:
    """Admits whoever names a node and a certificate of it: `look` reads it, `name` trusts that somebody has."""

    rekeyed: asyncio.Event = field(default_factory=asyncio.Event)
    act: Callable[[], Awaitable[None]] | None = None
    id: str = "namer"
    version: str = "1"
    roles: frozenset[Role] = frozenset(("node",))

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Challenge:
        way, node, tbs = evidence.payload.split(b"|", 2)
        if way == b"look":
            await context.nodes.certificate(tbs)
            act, self.act = self.act, None
            if act is not None:
                await act()
            self.rekeyed.set()
            return Admission(TenantId("acme"), "node", "web")
        await self.rekeyed.wait()
        return Admission(
            TenantId("acme"), "node", "web", node_id=NodeId(UUID(node.decode())), certificate=tbs
        )


async def _tbs(bench: Bench) -> bytes:
    found: bytes = await bench.one("SELECT tbs_sha256 FROM node_certs WHERE is_current")
    return found


async def test_certificate_that_was_read_for_somebody_else_is_read_again(database: str) -> None:
    """An author names a certificate without looking: what another request of the batch saw of it is old by now."""
    crypto, namer = keys(), Namer()
    reattesting = X509PopAttestor(Config(TRUST_DOMAIN, (), GRACE))
    async with (
        join_bench(database, attestors=[namer], crypto=crypto) as first,
        join_bench(database, attestors=[reattesting], crypto=crypto, worker="w1") as second,
    ):
        node = await joined(first)
        await move_clock(first, LATER)
        named = f"|{node.id}|".encode() + await _tbs(first)

        async def rekey() -> None:
            answer = await join(second, second.machine(), prover_of(node))
            assert answer["outcome"] == "joined"

        namer.act = rekey
        looks = first.machine().request(b"look" + named, attestor="namer")
        names = first.machine().request(b"name" + named, attestor="namer")
        answers = await first.ask(looks, names)

        assert [answer["outcome"] for answer in answers] == ["joined", "refused"]
        assert await last_reason(first) == "namer:not-its-node"
        assert await first.one("SELECT generation FROM nodes WHERE id = $1", UUID(node.id)) == 2
