"""Random lists of requests that get in each other's way, and what two databases say of them."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

from tests.support.attestors.scripted import Script, Scripted, ScriptedToken, Way, subject
from tests.support.joins import Bench, Machine
from watchword.handlers.attestor import Subject
from watchword.handlers.attestors.join_token.evidence import encode
from watchword.handlers.join.candidate import Broken, Candidate
from watchword.handlers.join.policy import Limits
from watchword.handlers.join.records import Answer
from watchword.schemas.requests import Claims

SECRET = b"s" * 32
TOKENS = ("onceonceonceonce", "twicetwicetwicet", "thricethricethri", "revokedrevokedre")
TOKEN_USES = (1, 2, 3, 9)
RECLAIM = "reclaimreclaimre"
EXPECTING = "expectingexpecti"
PLACES = (("acme", "web"), ("acme", "db"), ("globex", "web"))


def attestors() -> list[Any]:
    """Return the attestors that scenarios speak to."""
    return [
        ScriptedToken(),
        Scripted("scripted"),
        Scripted("other"),
        Scripted("lane", uses_tx=True),
        Scripted("narrow", limits=Limits(tenants=frozenset(("acme",)), unrestricted_kinds=True)),
    ]


@dataclass(frozen=True)
class Ask:
    """One request of a scenario: its bytes, and what is needed to answer a challenge to it."""

    value: bytes
    attestor: str = ""
    machine: Machine | None = None
    payload: bytes = b""


@dataclass
class Scenario:
    """A list of requests."""

    asks: list[Ask] = field(default_factory=list[Ask])
    machines: list[Machine] = field(default_factory=list[Machine])
    """Whoever asked, also in a scenario before."""


def scenario(rnd: Random, seal_to: bytes, size: int, before: Scenario | None = None) -> Scenario:
    """Return requests over few tokens, uses, bindings, keys and CSRs, so that they meet."""
    found = Scenario(machines=[] if before is None else list(before.machines))
    machines = found.machines
    while len(found.asks) < size:
        chance = rnd.random()
        if chance < 0.08 and found.asks:
            found.asks.append(rnd.choice(found.asks))
            continue
        if chance < 0.12:
            found.asks.append(Ask(rnd.choice((b"", b"{}", b'{"a":1,"a":2}', b"\xff" * 9))))
            continue
        if chance < 0.24 and machines:
            machine = rnd.choice(machines)  # the same CSR in other bytes
        elif chance < 0.32 and machines:
            machine = Machine(
                seal_to, key=rnd.choice(machines).key
            )  # the same key with another CSR
        else:
            machine = Machine(seal_to)
        machines.append(machine)
        found.asks.append(_ask(rnd, machine))
    return found


def _ask(rnd: Random, machine: Machine) -> Ask:
    if rnd.random() < 0.35:
        token = rnd.choice((*TOKENS, TOKENS[0], TOKENS[1], EXPECTING, "unknownunknownun"))
        payload = encode(token, SECRET if rnd.random() < 0.85 else b"x" * 32)
        claims = Claims(serial="S1" if rnd.random() < 0.6 else "S2")
        role: Any = "node" if rnd.random() < 0.9 else "site"
        return Ask(machine.request(payload, claims=claims, role=role), "join-token")
    attestor = rnd.choice(("scripted",) * 5 + ("other", "lane", "lane", "narrow", "none"))
    if rnd.random() < 0.15:
        attestor = "join-token"
    payload = _script(rnd, attestor).encode()
    return Ask(machine.request(payload, attestor=attestor), attestor, machine, payload)


def _script(rnd: Random, attestor: str) -> Script:
    way: Way = "admit"
    if rnd.random() < 0.15:
        way = rnd.choice(("refuse", "raise", "junk", "exit"))
    tenant, pool = rnd.choice((PLACES[0], PLACES[0], PLACES[0], *PLACES))

    def maybe(share: float, *values: Any) -> Any:  # noqa: ANN401 - one of the values
        return rnd.choice(values) if rnd.random() < share else None

    script = Script(
        way=way,
        detail={
            "refuse": rnd.choice(("no", "undeclared")),
            "junk": rnd.choice(("none", "pool-nul", "use-past", "memory", "challenge-naive")),
        }.get(way, ""),
        tenant=tenant,
        pool=pool,
        spend=tuple(rnd.sample(TOKENS[:3], rnd.choice((0, 0, 0, 1, 2)))),
        uses=tuple(
            (name, maybe(0.3, 3600)) for name in rnd.sample("uvwxyz", rnd.choice((0, 0, 1, 2)))
        ),
        bind=maybe(0.6, "b1", "b2", "b3", "b4"),
        rekey=rnd.random() < 0.6,
        hardware_key=maybe(0.4, "h1", "h2", "h3", "h4", "h5", "h6"),
        subjects=(("ek", maybe(1.0, "e1", "e2", "e3", "banned")),) if rnd.random() < 0.3 else (),
        kinds=maybe(0.3, ("disk.wipe",), ("diag.*",), ("wipe",), ()),
        unless_bound=maybe(0.15, "b1", "b2"),
        only_if_live=maybe(0.15, "b3", "b4"),
        role=maybe(0.03, "site"),
        rounds=2 if rnd.random() < 0.15 else 1,
        hops=rnd.randrange(4),
    )
    if attestor == "join-token":
        # The only attestor whose nodes a token's `allowReclaim` reaches.
        script = script.but(spend=(RECLAIM,), name_token=True, tenant="acme", pool="web", rounds=1)
        script = script.but(hardware_key=script.hardware_key or "h1", bind=None)
    return script


async def seed(bench: Bench) -> None:
    """Add what the scenarios speak of."""
    for tenant, pool in PLACES:
        await bench.place(tenant, pool)
    digest = sha256(SECRET).digest()
    rows = [
        (token, uses, "{}", False, token == TOKENS[3])
        for token, uses in zip(TOKENS, TOKEN_USES, strict=True)
    ]
    rows.append((RECLAIM, 9, "{}", True, False))
    rows.append((EXPECTING, 2, json.dumps({"serial": "S1"}), False, False))
    for token, uses, expect, reclaim, revoked in rows:
        await bench.fetch(
            "INSERT INTO tokens (id, secret_sha256, tenant, pool, role, uses_total, uses_left, expect, allow_reclaim, revoked_at, created_by)"
            " VALUES ($1, $2, 'acme', 'web', 'node', $3, $3, $4, $5, CASE WHEN $6 THEN now() END, 'test')",
            token, digest, uses, expect, reclaim, revoked,
        )  # fmt: skip
    banned = Subject("ek", "banned")
    await bench.fetch(
        "INSERT INTO bans (subject, kind, value, banned_at, who, why) VALUES ($1, $2, $3, now(), 'op', 'test')",
        banned.digest, banned.kind, banned.value,
    )  # fmt: skip
    # A use that has expired, and one that has not.
    await bench.fetch(
        "INSERT INTO attestation_uses (attestor, subject, node_id, expires_at) VALUES"
        " ('scripted', $1, gen_random_uuid(), now() - interval '1 hour'), ('scripted', $2, gen_random_uuid(), now() + interval '1 hour')",
        subject("u"), subject("v"),
    )  # fmt: skip


EMPTY = """
DELETE FROM node_certs; DELETE FROM nodes; DELETE FROM tokens; DELETE FROM pools; DELETE FROM sites; DELETE FROM admission_claims;
DELETE FROM node_subjects; DELETE FROM node_bindings; DELETE FROM attestation_uses; DELETE FROM bans; DELETE FROM inbox;
DELETE FROM journal; DELETE FROM refusals; DELETE FROM refusal_slots; DELETE FROM audit_log;
DELETE FROM tenants WHERE id <> 'root'
"""


class Order:
    """Observes in which order a batch was settled."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self.seen: list[Candidate] = []
        self.retries = 0
        self.halvings = 0

    def answered(self, candidate: Candidate, answer: Answer) -> None:
        """See `Observer`."""
        del answer
        self.seen.append(candidate)

    def retried(self, why: str) -> None:
        """See `Observer`."""
        del why
        self.retries += 1

    def suspected(self, *, given_up: bool) -> None:
        """Nobody ends here."""

    def halved(self) -> None:
        """See `Observer`."""
        self.halvings += 1

    def settled(self, arrival: dict[bytes, int]) -> list[int]:
        """Return places in arrival order in the order of settlement.

        Attempt by attempt; in each first what has no effect and was seen before all others, then the
        batch's own transaction, and then the lanes one by one.
        """

        def turn(candidate: Candidate) -> int:
            if isinstance(candidate.judgement, Broken):
                return 0
            return 2 if candidate.attestor == "lane" else 1

        keyed = sorted((c.rejudged, turn(c), arrival[c.digest]) for c in self.seen)
        return [place for _, _, place in keyed]


async def state_of(bench: Bench, arrival: dict[bytes, int]) -> dict[str, Any]:
    """Return all that a database holds, with names instead of what is random.

    A node is named by the CSRs that were admitted for it, a request by its place in the list.
    """
    certificates = await bench.fetch("SELECT * FROM node_certs")
    csrs: dict[Any, list[str]] = {}
    for row in certificates:
        csrs.setdefault(row["node_id"], []).append(row["csr_sha256"].hex())
    names = {node: "+".join(sorted(found)) for node, found in csrs.items()}

    def name(node: Any) -> str:  # noqa: ANN401 - a uuid or its text
        return names.get(node) or names.get(_uuid(node)) or "nobody"

    async def rows(query: str) -> list[tuple[Any, ...]]:
        found = [
            tuple(name(v) if k == "node_id" else v for k, v in row.items())
            for row in await bench.fetch(query)
        ]
        return sorted(found, key=repr)

    private = [
        json.loads(row[0])
        for row in await bench.fetch(
            "SELECT private FROM journal WHERE private IS NOT NULL ORDER BY seq"
        )
    ]
    return {
        "tokens": await rows("SELECT id, uses_left FROM tokens"),
        "nodes": await rows(
            "SELECT id AS node_id, tenant, pool, site, role, state, attestor, token_id, node_key_uri, hardware_key, generation FROM nodes"
        ),
        "certificates": await rows(
            "SELECT node_id, csr_sha256, spki_sha256, allowed_kinds, is_current, revoked_why, revoked_at IS NULL AS good FROM node_certs"
        ),
        "claims": await rows("SELECT * FROM admission_claims"),
        "subjects": await rows("SELECT * FROM node_subjects"),
        "bindings": await rows("SELECT * FROM node_bindings"),
        "uses": await rows(
            "SELECT attestor, subject, node_id, expires_at IS NULL AS forever FROM attestation_uses"
            " WHERE coalesce(expires_at > watchword.now(), true)"  # what has expired may go at any time
        ),
        "inbox": sorted(
            (arrival[row["digest"]], row["outcome"], name(row["node_id"]), row["csr_sha256"], row["reason"], row["not_after"])
            for row in await bench.fetch("SELECT * FROM inbox")
        ),
        "refusals": sorted(
            (arrival[row["request_sha256"]], row["type"], row["attestor"], row["reason"], row["tenant"], row["role"], row["published"])
            for row in await bench.fetch("SELECT * FROM refusals")
        ),
        "audit": await rows("SELECT who, action FROM audit_log"),
        "journal": sorted(
            repr(_event(json.loads(row["value"]), arrival, name))
            for row in await bench.fetch("SELECT value FROM journal")
        ),
        "private": sorted(repr(_private(value, name)) for value in private),
    }  # fmt: skip


def _uuid(text: Any) -> Any:  # noqa: ANN401 - perhaps no uuid at all
    from uuid import UUID  # noqa: PLC0415

    try:
        return UUID(str(text))
    except ValueError:
        return None


_RANDOM = ("id", "time", "certificateSerial", "notBefore", "notAfter", "requestId", "requestSha256", "offset", "worker")  # fmt: skip


def _event(value: dict[str, Any], arrival: dict[bytes, int], name: Any) -> dict[str, Any]:  # noqa: ANN401 - a function
    said = {k: v for k, v in value.items() if k not in _RANDOM}
    if "nodeId" in said:
        said["nodeId"] = name(said["nodeId"])
    if "requestSha256" in value:
        said["place"] = arrival[bytes.fromhex(value["requestSha256"])]
    return said


def _private(value: dict[str, Any], name: Any) -> dict[str, Any]:  # noqa: ANN401 - a function
    said = json.loads(json.dumps(value))
    certificate, node = said["certificate"], said["node"]
    node_name = name(certificate["node_id"])
    for random in ("serial", "tbs_sha256", "not_before", "not_after", "der", "issued_at"):
        certificate.pop(random)
    certificate["node_id"] = node["id"] = node_name
    for random in ("updated_at",):
        node.pop(random)
    node["joined_at"] = node["joined_at"] is None
    for use in said["uses"]:
        use.pop("used_at")
        use["expires_at"] = use["expires_at"] is None
    said["revoked_at"] = said["revoked_at"] is None
    for unordered in ("claims", "subjects", "bindings", "uses", "revoked"):
        said[unordered] = sorted(said[unordered], key=repr)
    found: dict[str, Any] = said
    return found


def told(answer: dict[str, Any]) -> tuple[Any, ...]:
    """Return what an answer says without what is random."""
    joined = answer.get("joined")
    if joined is None:
        deferred = answer.get("deferred") or {}
        return (answer["outcome"], answer.get("refused"), answer.get("failed"), deferred.get("type"), deferred.get("challenge"))  # fmt: skip
    return ("joined", joined["tenant"], joined["pool"], joined["site"], joined["role"], joined["allowedKinds"])  # fmt: skip


def conflicts(seen: Sequence[Candidate], state: dict[str, Any], answers: Sequence[dict[str, Any]]) -> Counter[str]:  # fmt: skip
    """Count what happened, so that a test can say that something did."""
    counted: Counter[str] = Counter()
    counted["rejudged"] = sum(c.rejudged > 0 for c in seen)
    counted["rejudged twice"] = sum(c.rejudged > 1 for c in seen)
    for _, kind, attestor, reason, *_, published in state["refusals"]:
        counted[reason] += 1
        counted[kind] += 1
        counted["published" if published else "suppressed"] += 1
        counted["by the lane"] += attestor == "lane"
    for _, outcome, *_ in state["inbox"]:
        counted[f"outcome {outcome}"] += 1
    counted["re-keyed"] = sum(row[-1] > 1 for row in state["nodes"])
    for answer in answers:
        counted[told(answer)[0]] += 1
    counted["unavailable"] = sum((a.get("failed") or {}).get("code") == "UNAVAILABLE" for a in answers)  # fmt: skip
    return counted
