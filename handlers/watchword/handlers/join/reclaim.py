"""Which node an admission means, and whether it may have it.

Steps of DESIGN, section 5:
  8.  A proven hardware key that is enrolled needs `allowReclaim` on the token. A node with a proven
      key, binding or statement is re-keyed only by what proves the same subject (no downgrade).
      `allowReclaim` reaches nodes of the token's own tenant, pool, site and role, last admitted by
      `join-token` or named by its `expect`.
  9.  An admission's `node_id` is accepted only if its `bind` is bound to that node, the certificate shown
      is the node's current one, or step 8 allows it.
  10. `bind` belongs to one node for good; a bound subject without its `node_id` is `bound-elsewhere`.
"""

from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from watchword.handlers.attestor import Admission, Token
from watchword.handlers.errors import Refused
from watchword.handlers.join.candidate import Proof
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.reading import HARDWARE_KEY, Nodes
from watchword.handlers.rows import NodeRow, Pair
from watchword.schemas.ids import JOIN, AttestorId

_GONE = frozenset(("retired", "deleted"))


@dataclass(frozen=True, slots=True)
class Place:
    """The node that is re-keyed, or none for a new one, and what has to be bound to it."""

    rekeys: NodeRow | None
    bindings: tuple[Pair, ...]


def bindings_of(
    attestor: AttestorId, admission: Admission, proof: Proof | None = None
) -> tuple[Pair, ...]:
    """Return what an admission binds: the attestor's own subject, that of a proof, and the hardware key."""
    found: list[Pair] = []
    if admission.bind is not None:
        found.append((attestor, admission.bind))
    if proof is not None and proof.admission.bind is not None:
        found.append((proof.attestor, proof.admission.bind))
    if admission.hardware_key is not None:
        found.append((HARDWARE_KEY, sha256(admission.hardware_key.encode()).digest()))
    return tuple(found)


async def which_node(
    attestor: AttestorId,
    admission: Admission,
    token: Token | None,
    nodes: Nodes,
    loader: Loader,
    reads: set[tuple[str, object]],
    proof: Proof | None = None,
) -> Place:
    """Return the node that the admission means. What another attestor's `proof` binds counts as its own.

    Raises:
        Refused: `join:already-enrolled`, `join:no-downgrade`, `join:banned`, `<attestor>:not-its-node`
            or `<attestor>:bound-elsewhere`.
    """
    bindings = bindings_of(attestor, admission, proof)
    owners: dict[Pair, UUID] = {}
    for pair in bindings:
        reads.add(("binding", pair))
        owner = await loader.get(loader.bindings, pair)
        if owner is not None:
            owners[pair] = owner
    bound = [pair for pair in bindings if pair[0] != HARDWARE_KEY and pair in owners]
    enrolled = next((owners.get(pair) for pair in bindings if pair[0] == HARDWARE_KEY), None)
    target: UUID | None = admission.node_id
    named = _named_by(token)

    # Step 8
    if enrolled is not None and enrolled != target:
        if target is not None or token is None or not token.allow_reclaim:
            raise Refused(JOIN, "already-enrolled", tenant_id=admission.tenant)
        target = enrolled
    if target is None:
        # Step 10
        for whose, subject in bound:
            raise Refused(
                AttestorId(whose), "bound-elsewhere", tenant_id=admission.tenant, tried=subject
            )
        return Place(None, bindings)

    # Step 9
    node = await nodes.row(target)
    refusal = Refused(attestor, "not-its-node", tenant_id=admission.tenant)
    if node is None or node.state in _GONE:
        raise refusal
    if (node.tenant, node.role) != (admission.tenant, admission.role):
        raise refusal
    if node.state == "banned":
        raise Refused(JOIN, "banned", tenant_id=admission.tenant)
    by_binding = any(owners[pair] == target for pair in bound)
    by_token = token is not None and reclaims(token, node) and (target in (named, enrolled))
    by_certificate = await _shows_its_certificate(admission, target, nodes)
    if not (by_binding or by_token or by_certificate):
        raise refusal

    # Step 10
    for pair in bound:
        if owners[pair] != target:
            raise Refused(
                AttestorId(pair[0]), "bound-elsewhere", tenant_id=admission.tenant, tried=pair[1]
            )

    # Step 8, no downgrade
    if node.hardware_key is not None and node.hardware_key != admission.hardware_key:
        raise Refused(JOIN, "no-downgrade", tenant_id=admission.tenant)
    if node.node_key_uri is not None and node.node_key_uri != admission.node_key_uri:
        raise Refused(JOIN, "no-downgrade", tenant_id=admission.tenant)
    if not (by_binding or by_certificate) and await loader.bound_to(target) - set(bindings):
        raise Refused(JOIN, "no-downgrade", tenant_id=admission.tenant)
    return Place(node, bindings)


async def _shows_its_certificate(admission: Admission, target: UUID, nodes: Nodes) -> bool:
    """Tell whether the certificate whose key was proved is the node's current one.

    What was read is noted and read again under the node's lock, whether the attestor has looked or not: the
    row may have been read for another request of the batch, before the node was re-keyed.
    """
    if admission.certificate is None:
        return False
    row = await nodes.certificate(admission.certificate)
    return row is not None and row.node_id == target and row.is_current and not row.revoked


def reclaims(token: Token, node: NodeRow) -> bool:
    """Tell whether `allowReclaim` of this token reaches this node."""
    return (
        token.allow_reclaim
        and (token.tenant, token.pool, token.site, token.role)
        == (node.tenant, node.pool, node.site, node.role)
        and (node.attestor == "join-token" or _named_by(token) == node.id)
    )


def _named_by(token: Token | None) -> UUID | None:
    if token is None or "node" not in token.expect:
        return None
    try:
        return UUID(token.expect["node"])
    except ValueError:
        return None
