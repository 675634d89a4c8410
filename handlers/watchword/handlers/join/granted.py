"""Reclaims that an operator has granted: this node, to whoever proves this subject by this attestor, once.

A grant is looked for with what the evidence has proved, after it was judged in full. It stands in the
place of steps 8 to 10 of the order of checks, and of nothing else:
  1. the attestor and a proven subject are those that the operator named; the grant has not expired;
  2. the node is there, and neither deleted nor banned (a retired one may come back);
  3. tenant and role are the node's;
  4. what the admission binds is bound to nobody else, and it asks for no other node.
The node's old bindings go: whoever had what it was bound to must not take it back.
"""

from collections.abc import Collection
from datetime import datetime

from watchword.handlers.attestor import Admission
from watchword.handlers.errors import Refused
from watchword.handlers.join.candidate import Proof
from watchword.handlers.join.loading import Loader
from watchword.handlers.join.reading import Nodes
from watchword.handlers.join.reclaim import Place, bindings_of
from watchword.handlers.rows import GrantRow
from watchword.schemas.ids import JOIN, AttestorId


async def grant_for(
    attestor: AttestorId,
    subjects: Collection[bytes],
    loader: Loader,
    reads: set[tuple[str, object]],
    now: datetime,
) -> GrantRow | None:
    """Return the oldest open grant that this proof fulfils: step 1."""
    found: list[GrantRow] = []
    for subject in subjects:
        rows = await loader.get(loader.grants, subject) or ()
        found += [row for row in rows if row.attestor == attestor and now < row.expires_at]
    if not found:
        return None
    grant = min(found, key=lambda row: row.id)
    reads.add(("grant", grant.id))
    return grant


async def granted_node(
    attestor: AttestorId,
    admission: Admission,
    grant: GrantRow,
    nodes: Nodes,
    loader: Loader,
    reads: set[tuple[str, object]],
    proof: Proof | None = None,
) -> Place:
    """Return the node that was granted: steps 2 to 4.

    Raises:
        Refused: `<attestor>:not-its-node`, `<attestor>:bound-elsewhere` or `join:banned`.
    """
    # Step 2
    node = await nodes.row(grant.node_id)
    if node is None or node.state == "deleted":
        raise Refused(attestor, "not-its-node", tenant_id=admission.tenant)
    if node.state == "banned":
        raise Refused(JOIN, "banned", tenant_id=admission.tenant)

    # Step 3
    if (node.tenant, node.role) != (admission.tenant, admission.role):
        raise Refused(attestor, "not-its-node", tenant_id=admission.tenant)

    # Step 4
    if admission.node_id not in (None, node.id):
        raise Refused(attestor, "bound-elsewhere", tenant_id=admission.tenant)
    bindings = bindings_of(attestor, admission, proof)
    for pair in bindings:
        reads.add(("binding", pair))
        if await loader.get(loader.bindings, pair) not in (None, node.id):
            raise Refused(attestor, "bound-elsewhere", tenant_id=admission.tenant)
    return Place(node, bindings)
