"""What the core's checks were about: parsed public fields and hashes, read off a judged candidate. Pure."""

from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from watchword.handlers.attestor import Admission
from watchword.handlers.explain.steps import Step
from watchword.handlers.explain.trace import Shown, shown
from watchword.handlers.join.candidate import (
    Admit,
    Broken,
    Candidate,
    Fetch,
    Judgement,
    Renewal,
    Theft,
    Waits,
)
from watchword.handlers.join.counted import claimed_hardware_key
from watchword.handlers.join.deciding import World, use_claims
from watchword.handlers.rows import Renewable

Facts = dict[str, Shown]

_MOST_LISTED = 8


def request_facts(candidate: Candidate) -> Facts:
    """Return what the request says in clear."""
    request, csr = candidate.request, candidate.csr
    facts: Facts = {
        "request_sha256": candidate.digest.hex(),
        "bytes": len(candidate.incoming.value or b""),
    }
    if request is not None:
        facts |= {
            "request_id": request.request_id,
            "kind": request.kind,
            "attestor": request.resolved_attestor(),
            "role": request.role,
            "round": "answer" if request.state is not None else "first",
        }
    if csr is not None:
        facts |= {"csr_sha256": csr.sha256.hex(), "key": _key_of(candidate)}
    return facts


def tell(
    steps: Sequence[Step], candidate: Candidate, verified: Judgement | None, world: World | None
) -> None:
    """Add to each check that was reached what it was about. `verified` is the verdict without the locks."""
    facts = _of_renewal if candidate.renews or candidate.fetches else _of_join
    for step in steps:
        if step.attestor is None and step.status != "not-reached":
            step.facts |= facts(candidate, verified, world).get(step.number, {})


def _of_join(
    candidate: Candidate, verified: Judgement | None, world: World | None
) -> Mapping[str, Facts]:
    found: dict[str, Facts] = {"1": _of_shape(candidate)}
    request, csr = candidate.request, candidate.csr
    if request is not None:
        found["2"] = {"attestor": request.resolved_attestor(), "role": request.role}
        found["4"] = {"encryption_key": request.encryption_key_id, **_of_claims(candidate)}
    if candidate.admitted_before is not None:
        before = candidate.admitted_before
        found["3"] = {"node": str(before.node_id), "stands": before.stands}
    if csr is not None:
        found["3b"] = {"spki_sha256": csr.spki_sha256.hex()}
    if isinstance(verified, Broken):
        found["4"] = found.get("4", {}) | {"attestor_broke": shown(verified.why)}
    if isinstance(verified, Waits):
        grant = verified.approval.grant
        found |= _of_admission(grant)
        found["12"] = {
            "waits_for": "an operator",
            "subject_sha256": verified.approval.subject.hex(),
        }
        found["7"] = _of_bans(verified.ban_subjects, world)
    if isinstance(verified, Admit):
        found |= _of_admission(verified.admission)
        found["4b"] = {"spends": _listed(verified.staged.spends)}
        found["7"] = _of_bans(verified.ban_subjects, world)
        found["8"] = _of_node(verified)
        found["9"] = {"node": "new" if verified.rekeys is None else str(verified.rekeys.id)}
        found["10"] = {
            "binds": _listed([f"{who}:{subject.hex()}" for who, subject in verified.bindings])
        }
        uses = [f"{who}:{subject.hex()}" for who, subject in use_claims(candidate, verified)]
        found["12"] = {
            "uses_once": _listed(uses),
            "approved": verified.approval is not None,
        }
    return found


def _of_renewal(
    candidate: Candidate, verified: Judgement | None, world: World | None
) -> Mapping[str, Facts]:
    found: dict[str, Facts] = {"1": _of_shape(candidate)}
    known: Renewable | None = None
    if isinstance(verified, Renewal):
        known = verified.renews
        found["12"] = _of_bans(verified.ban_subjects, world)
    elif isinstance(verified, Theft):
        known = verified.contested
    elif isinstance(verified, Fetch):
        known = verified.known
    if candidate.admitted_before is not None:
        found["2"] = {"node": str(candidate.admitted_before.node_id)}
    if known is not None:
        certificate, node = known.certificate, known.node
        found["4"] = {
            "certificate": certificate.tbs_sha256.hex(),
            "serial": known.serial.hex(),
            "node": str(node.id),
        }
        found["6"] = {"role_of_node": node.role}
        found["7"] = {"state": node.state, "version": node.version}
        found["8"] = {
            "not_after": shown(certificate.not_after),
            "revoked": certificate.revoked,
        }
        found["9"] = {
            "is_current": certificate.is_current,
            "was_renewed": known.successor_spki is not None,
        }
        found["10"] = {"statement": shown(certificate.node_key_uri)}
    return found


def _of_shape(candidate: Candidate) -> Facts:
    if candidate.csr is None:
        return {"bytes": len(candidate.incoming.value or b"")}
    return {"csr_sha256": candidate.csr.sha256.hex(), "key": _key_of(candidate)}


def _of_claims(candidate: Candidate) -> Facts:
    """Return what the machine claims by name alone: none of it is proven, and text of it may be hostile."""
    if candidate.claims is None:
        return {}
    said = candidate.claims.model_dump(exclude_defaults=True)
    facts: Facts = {"claims": _listed(sorted(said))}
    if (key := claimed_hardware_key(candidate)) is not None:
        facts["claimed_hardware_key_sha256"] = key.hex()
    return facts


def _of_admission(grant: Admission) -> dict[str, Facts]:
    kinds = "unrestricted" if grant.allowed_kinds is None else _listed(grant.allowed_kinds)
    return {
        "5": {"node_key": shown(grant.node_key_uri or "unattested")},
        "6": {"token": shown(grant.token_id)},
        "11": {
            "tenant": shown(grant.tenant),
            "pool": shown(grant.pool),
            "site": shown(grant.site),
            "role": shown(grant.role),
            "kinds": shown(kinds),
        },
    }


def _of_bans(subjects: Sequence[bytes], world: World | None) -> Facts:
    banned = [s for s in subjects if world is not None and s in world.banned]
    facts: Facts = {"subjects": len(subjects)}
    if banned:
        facts["banned"] = _listed([subject.hex() for subject in banned])
    return facts


def _of_node(admit: Admit) -> Facts:
    node = admit.rekeys
    facts: Facts = {"hardware_key": shown(admit.admission.hardware_key)}
    if admit.grant is not None:
        facts["reclaim_grant"] = str(admit.grant)
    if node is not None:
        facts |= {"state": node.state, "last_admitted_by": node.attestor}
    return facts


def _key_of(candidate: Candidate) -> str:
    key = None if candidate.csr is None else candidate.csr.public_key
    match key:
        case ec.EllipticCurvePublicKey():
            return f"EC {key.curve.name}"
        case rsa.RSAPublicKey():
            return f"RSA {key.key_size}"
        case None:
            return "none"
        case _:
            return "Ed25519"


def _listed(names: Sequence[str]) -> Shown:
    if not names:
        return "nothing"
    more = len(names) - _MOST_LISTED
    return shown(", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else ""))
