"""Which node an admission means: every way to get somebody else's, and why it does not work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, cast
from uuid import UUID

import pytest

from watchword.handlers.attestor import Admission, Token
from watchword.handlers.errors import Refused
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.ports import Reads
from watchword.handlers.join.reading import HARDWARE_KEY, Nodes
from watchword.handlers.join.reclaim import reclaims, which_node
from watchword.handlers.rows import CertificateRow, NodeRow, Pair
from watchword.schemas.ids import AttestorId, NodeId, TenantId, TokenId

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NODE, OTHER = NodeId(UUID(int=1)), NodeId(UUID(int=2))
BIND = b"b" * 32
HARDWARE = "ek:1234"
STATEMENT = "urn:bc:tpm-ak:" + "a" * 64
CERTIFICATE = b"c" * 32

ROW = NodeRow(NODE, "acme", "web", None, "node", "active", "join-token", None, None, 1)
ADMISSION = Admission(tenant=TenantId("acme"), role="node", pool="web")
TOKEN = Token(
    TokenId("0123456789abcdef"), b"", TenantId("acme"), "web", None, "node", 1, None,
    revoked=False, allow_reclaim=True, allowed_kinds=None, expect={},
)  # fmt: skip


def hardware(name: str) -> Pair:
    return (HARDWARE_KEY, sha256(name.encode()).digest())


@dataclass
class Tables:
    """What is in the database; as much of `Reads` as is asked."""

    rows: dict[UUID, NodeRow] = field(default_factory=lambda: {NODE: ROW})
    bound: dict[Pair, UUID] = field(default_factory=dict[Pair, UUID])
    shown: dict[bytes, CertificateRow] = field(default_factory=dict[bytes, CertificateRow])

    async def nodes(self, ids: Sequence[UUID]) -> Mapping[UUID, NodeRow]:
        return {node: self.rows[node] for node in ids if node in self.rows}

    async def bindings(self, pairs: Sequence[Pair]) -> Mapping[Pair, UUID]:
        return {pair: self.bound[pair] for pair in pairs if pair in self.bound}

    async def bindings_of(self, nodes: Sequence[UUID]) -> Mapping[Pair, UUID]:
        return {pair: node for pair, node in self.bound.items() if node in nodes}

    async def certificates(self, tbs: Sequence[bytes]) -> Mapping[bytes, CertificateRow]:
        return {one: self.shown[one] for one in tbs if one in self.shown}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - other reads, which nobody asks for
        """Stand for every other read."""
        return None


async def found(tables: Tables, admission: Admission, token: Token | None) -> str:
    """Return `new`, the node that is re-keyed, or the refusal."""
    loader = Loader(cast("Reads", tables))
    reads: set[tuple[str, object]] = set()
    try:
        place = await which_node(
            AttestorId("acme-asset"), admission, token, Nodes(loader, reads, {}), loader, reads
        )
    except Refused as refused:
        return str(refused) if refused.tenant_id == admission.tenant else "refused to root"
    finally:
        await loader.close()
    # Whatever it is decided by has been noted as read.
    assert {("binding", pair) for pair in place.bindings} <= reads
    if place.rekeys is None:
        return "new"
    assert ("node", place.rekeys.id) in reads
    return f"node {place.rekeys.id.int}"


def row(**changes: Any) -> dict[UUID, NodeRow]:  # noqa: ANN401 - any field
    return {NODE: replace(ROW, **changes)}


def certificate(**changes: Any) -> dict[bytes, CertificateRow]:  # noqa: ANN401 - any field
    good = CertificateRow(
        CERTIFICATE, NODE, b"", NOW, NOW, None, None, is_current=True, revoked=False
    )
    return {CERTIFICATE: replace(good, **changes)}


named = replace(TOKEN, expect={"node": str(NODE)})
own = ("acme-asset", BIND)

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Token | None, str]] = {
    # name: tables, admission, token, what is found
    "nothing is known": ({}, {}, None, "new"),
    "a free subject": ({}, {"bind": BIND}, None, "new"),
    "free hardware": ({}, {"hardware_key": HARDWARE}, None, "new"),
    "another attestor's subject": ({"bound": {("other", BIND): OTHER}}, {"bind": BIND}, None, "new"),
    # Step 10
    "a bound subject without its node": ({"bound": {own: NODE}}, {"bind": BIND}, None, "acme-asset:bound-elsewhere"),
    "another node's subject": ({"bound": {own: OTHER}}, {"bind": BIND, "node_id": NODE}, named, "acme-asset:bound-elsewhere"),
    # Step 9
    "a node that is not there": ({"rows": {}}, {"node_id": NODE}, named, "acme-asset:not-its-node"),
    "a node by its name alone": ({}, {"node_id": NODE}, None, "acme-asset:not-its-node"),
    "its own subject": ({"bound": {own: NODE}}, {"bind": BIND, "node_id": NODE}, None, "node 1"),
    "its own, of another tenant": ({"bound": {own: NODE}, "rows": row(tenant="globex")}, {"bind": BIND, "node_id": NODE}, None, "acme-asset:not-its-node"),
    "its own, of another role": ({"bound": {own: NODE}, "rows": row(role="site")}, {"bind": BIND, "node_id": NODE}, None, "acme-asset:not-its-node"),
    "its own, in another pool": ({"bound": {own: NODE}, "rows": row(pool="db")}, {"bind": BIND, "node_id": NODE}, None, "node 1"),
    "its own, evicted": ({"bound": {own: NODE}, "rows": row(state="evicted")}, {"bind": BIND, "node_id": NODE}, None, "node 1"),
    "its own, banned": ({"bound": {own: NODE}, "rows": row(state="banned")}, {"bind": BIND, "node_id": NODE}, None, "join:banned"),
    "its own, retired": ({"bound": {own: NODE}, "rows": row(state="retired")}, {"bind": BIND, "node_id": NODE}, None, "acme-asset:not-its-node"),
    "its own, deleted": ({"bound": {own: NODE}, "rows": row(state="deleted")}, {"bind": BIND, "node_id": NODE}, None, "acme-asset:not-its-node"),
    # The certificate shown is its current one
    "its certificate": ({"shown": certificate()}, {"node_id": NODE, "certificate": CERTIFICATE}, None, "node 1"),
    "no such certificate": ({}, {"node_id": NODE, "certificate": CERTIFICATE}, None, "acme-asset:not-its-node"),
    "another node's certificate": ({"shown": certificate(node_id=OTHER)}, {"node_id": NODE, "certificate": CERTIFICATE}, None, "acme-asset:not-its-node"),
    "an old certificate": ({"shown": certificate(is_current=False)}, {"node_id": NODE, "certificate": CERTIFICATE}, None, "acme-asset:not-its-node"),
    "a revoked certificate": ({"shown": certificate(revoked=True)}, {"node_id": NODE, "certificate": CERTIFICATE}, None, "acme-asset:not-its-node"),
    # Step 8: hardware
    "enrolled hardware": ({"bound": {hardware(HARDWARE): NODE}}, {"hardware_key": HARDWARE}, None, "join:already-enrolled"),
    "enrolled hardware, a token without reclaim": ({"bound": {hardware(HARDWARE): NODE}}, {"hardware_key": HARDWARE}, replace(TOKEN, allow_reclaim=False), "join:already-enrolled"),
    "enrolled hardware, a token with reclaim": ({"bound": {hardware(HARDWARE): NODE}}, {"hardware_key": HARDWARE}, TOKEN, "node 1"),
    "enrolled hardware of another pool": ({"bound": {hardware(HARDWARE): NODE}, "rows": row(pool="db")}, {"hardware_key": HARDWARE}, TOKEN, "acme-asset:not-its-node"),
    "enrolled by another attestor": ({"bound": {hardware(HARDWARE): NODE}, "rows": row(attestor="tpm")}, {"hardware_key": HARDWARE}, TOKEN, "acme-asset:not-its-node"),
    "enrolled by another attestor, named": ({"bound": {hardware(HARDWARE): NODE}, "rows": row(attestor="tpm")}, {"hardware_key": HARDWARE, "node_id": NODE}, named, "node 1"),
    "enrolled hardware, another node asked for": ({"bound": {hardware(HARDWARE): OTHER}}, {"hardware_key": HARDWARE, "node_id": NODE}, named, "join:already-enrolled"),
    "enrolled hardware is no permission": ({"bound": {hardware(HARDWARE): NODE}, "rows": row(hardware_key=HARDWARE)}, {"hardware_key": HARDWARE, "node_id": NODE}, None, "acme-asset:not-its-node"),
    "two nodes: one by hardware, one by subject": ({"bound": {hardware(HARDWARE): NODE, own: OTHER}}, {"hardware_key": HARDWARE, "bind": BIND}, TOKEN, "acme-asset:bound-elsewhere"),
    # Step 8: a token that names the node
    "named by the token": ({}, {"node_id": NODE}, named, "node 1"),
    "named by a token without reclaim": ({}, {"node_id": NODE}, replace(named, allow_reclaim=False), "acme-asset:not-its-node"),
    "named, of another pool": ({"rows": row(pool="db")}, {"node_id": NODE}, named, "acme-asset:not-its-node"),
    "named, of another site": ({"rows": row(site="ber1")}, {"node_id": NODE}, named, "acme-asset:not-its-node"),
    "another one is named": ({}, {"node_id": NODE}, replace(TOKEN, expect={"node": str(OTHER)}), "acme-asset:not-its-node"),
    "junk is named": ({}, {"node_id": NODE}, replace(TOKEN, expect={"node": "junk"}), "acme-asset:not-its-node"),
    # Step 8: no downgrade
    "named, but it has a hardware key": ({"rows": row(hardware_key=HARDWARE)}, {"node_id": NODE}, named, "join:no-downgrade"),
    "its own, but it has a hardware key": ({"bound": {own: NODE}, "rows": row(hardware_key=HARDWARE)}, {"bind": BIND, "node_id": NODE}, None, "join:no-downgrade"),
    "its own, another hardware key": ({"bound": {own: NODE}, "rows": row(hardware_key=HARDWARE)}, {"bind": BIND, "node_id": NODE, "hardware_key": "ek:other"}, None, "join:no-downgrade"),
    "its own, with the hardware key": ({"bound": {own: NODE, hardware(HARDWARE): NODE}, "rows": row(hardware_key=HARDWARE)}, {"bind": BIND, "node_id": NODE, "hardware_key": HARDWARE}, None, "node 1"),
    "its own, a first hardware key": ({"bound": {own: NODE}}, {"bind": BIND, "node_id": NODE, "hardware_key": HARDWARE}, None, "node 1"),
    "named, but it has a statement": ({"rows": row(node_key_uri=STATEMENT)}, {"node_id": NODE}, named, "join:no-downgrade"),
    "its own, with the statement": ({"bound": {own: NODE}, "rows": row(node_key_uri=STATEMENT)}, {"bind": BIND, "node_id": NODE, "node_key_uri": STATEMENT}, None, "node 1"),
    "its own, another statement": ({"bound": {own: NODE}, "rows": row(node_key_uri=STATEMENT)}, {"bind": BIND, "node_id": NODE, "node_key_uri": STATEMENT[:-1] + "b"}, None, "join:no-downgrade"),
    "named, but something is bound to it": ({"bound": {("tpm", b"t" * 32): NODE}}, {"node_id": NODE}, named, "join:no-downgrade"),
    "by its certificate, though something is bound": ({"shown": certificate(), "bound": {("tpm", b"t" * 32): NODE}}, {"node_id": NODE, "certificate": CERTIFICATE}, None, "node 1"),
    "by its certificate, but it has a statement": ({"shown": certificate(), "rows": row(node_key_uri=STATEMENT)}, {"node_id": NODE, "certificate": CERTIFICATE}, None, "join:no-downgrade"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_node_belongs_to_whoever_proves_it(
    case: tuple[dict[str, Any], dict[str, Any], Token | None, str],
) -> None:
    """A node, once taken over, has another machine's key: each way to it is one that an operator gave."""
    tables, changes, token, expected = case
    assert await found(Tables(**tables), replace(ADMISSION, **changes), token) == expected


@pytest.mark.parametrize(
    "difference",
    [{"tenant": "globex"}, {"pool": "db"}, {"site": "ber1"}, {"role": "site"}, {"attestor": "tpm"}],
    ids=str,
)
def test_reclaim_reaches_only_the_tokens_own_place(difference: dict[str, Any]) -> None:
    """A token of one pool must not take over a node of another."""
    assert reclaims(TOKEN, ROW)
    assert not reclaims(TOKEN, replace(ROW, **difference))
    assert not reclaims(replace(TOKEN, allow_reclaim=False), ROW)
