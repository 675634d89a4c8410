"""What a granted reclaim writes beyond a re-key: the grant is used up, and the node's old bindings go."""

from datetime import datetime
from uuid import UUID

from watchword.handlers.join.candidate import Admit, Candidate
from watchword.handlers.join.deciding import Effects
from watchword.handlers.join.ports import Session


async def use_grants(session: Session, effects: Effects, now: datetime) -> None:
    """Use up the grants of a batch; each admission is told what its node is bound to no more."""
    used: dict[UUID, bytes] = {}
    by_node: dict[UUID, Admit] = {}
    for grant, candidate in effects.grants.items():
        admit = _admit(candidate)
        used[grant] = candidate.question.csr_sha256 or b""
        by_node[admit.node_id] = admit
    nodes = sorted(by_node)
    kept = sorted({pair for admit in by_node.values() for pair in admit.bindings})
    unbound = await session.unbind(nodes, kept)
    for node, admit in by_node.items():
        admit.unbound = unbound.get(node, [])
    without = [node for node in nodes if by_node[node].admission.hardware_key is None]
    await session.use_grants(used, without, now)


def _admit(candidate: Candidate) -> Admit:
    if not isinstance(candidate.judgement, Admit):
        message = "not an admission"
        raise TypeError(message)
    return candidate.judgement
