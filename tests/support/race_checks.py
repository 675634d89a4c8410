"""What must hold after a race: plain SQL, and the answers that were recorded."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import asyncpg

from tests.support.attestors.scripted import subject
from tests.support.racing import LIMITS, TOKENS, Asked, Race, Told

SETUP = """
CREATE TABLE race_notes (csr bytea NOT NULL);
CREATE TABLE race_slots (tenant text, attestor text, reason text, slot integer, claimed_at timestamptz);
CREATE FUNCTION race_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO watchword.race_slots VALUES (NEW.tenant, NEW.attestor, NEW.reason, NEW.slot, NEW.claimed_at);
    RETURN NULL;
END $$;
CREATE TRIGGER race_log AFTER UPDATE ON refusal_slots FOR EACH ROW EXECUTE FUNCTION race_log();
DO $$ BEGIN CREATE ROLE plg_lane NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT USAGE ON SCHEMA watchword TO plg_lane;
GRANT ALL ON race_notes TO plg_lane;
"""
"""A table for raw SQL to write, with the role that does, and a log of every slot that was claimed and committed."""

VIOLATIONS: dict[str, str] = {
    "a node without its certificate": "SELECT id FROM nodes n WHERE NOT EXISTS (SELECT FROM node_certs c WHERE c.node_id = n.id AND c.is_current)",
    "a node with two current certificates": "SELECT node_id FROM node_certs WHERE is_current GROUP BY 1 HAVING count(*) > 1",
    "generation is not the number of certificates": "SELECT id FROM nodes n WHERE generation <> (SELECT count(*) FROM node_certs c WHERE c.node_id = n.id)",
    "a CSR that is not claimed by its node": "SELECT csr_sha256 FROM node_certs c WHERE NOT EXISTS (SELECT FROM admission_claims a WHERE a.kind = 'csr' AND a.subject = c.csr_sha256 AND a.node_id = c.node_id)",
    "a key that is not claimed by its node": "SELECT csr_sha256 FROM node_certs c WHERE NOT EXISTS (SELECT FROM admission_claims a WHERE a.kind = 'key' AND a.subject = c.spki_sha256 AND a.node_id = c.node_id)",
    "a claim that nobody has": "SELECT subject FROM admission_claims a WHERE NOT EXISTS (SELECT FROM node_certs c WHERE c.node_id = a.node_id AND a.subject = CASE a.kind WHEN 'csr' THEN c.csr_sha256 ELSE c.spki_sha256 END)",
    "a use of no node": "SELECT subject FROM attestation_uses u WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.id = u.node_id)",
    "a binding of no node": "SELECT subject FROM node_bindings b WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.id = b.node_id)",
    "not one node.joined per certificate": "SELECT id FROM nodes n WHERE (SELECT count(*) FROM journal j WHERE j.type = 'node.joined' AND j.key = convert_to(n.id::text, 'UTF8')) <> n.generation",
    "not one audit row per certificate": "SELECT id FROM nodes n WHERE (SELECT count(*) FROM audit_log a WHERE a.action = 'node.join' AND a.target = n.id::text) <> n.generation",
    "an event of no node": "SELECT event_id FROM journal j WHERE type = 'node.joined' AND NOT EXISTS (SELECT FROM nodes n WHERE convert_to(n.id::text, 'UTF8') = j.key)",
    "a joined outcome without its node": "SELECT digest FROM inbox WHERE outcome = 1 AND NOT EXISTS (SELECT FROM node_certs c WHERE c.node_id = inbox.node_id AND c.csr_sha256 = inbox.csr_sha256)",
    "a certificate that no outcome speaks of": "SELECT csr_sha256 FROM node_certs c WHERE NOT EXISTS (SELECT FROM inbox i WHERE i.outcome = 1 AND i.csr_sha256 = c.csr_sha256 AND i.node_id = c.node_id)",
    "a refused outcome without exactly one refusal": "SELECT digest FROM inbox i WHERE outcome = 2 AND (SELECT count(*) FROM refusals r WHERE r.request_sha256 = i.digest AND r.attestor || ':' || r.reason = i.reason) <> 1",
    "a refusal without its outcome": "SELECT id FROM refusals r WHERE NOT EXISTS (SELECT FROM inbox i WHERE i.digest = r.request_sha256 AND i.outcome IN (2, 4, 5))",
    "two refusals of one request": "SELECT request_sha256 FROM refusals GROUP BY 1 HAVING count(*) > 1",
    "published is not what the journal has": "SELECT 1 WHERE (SELECT count(*) FROM refusals WHERE published) <> (SELECT count(*) FROM journal WHERE class = 'refusal')",
    "published without a claimed slot": "SELECT 1 WHERE (SELECT count(*) FROM refusals WHERE published) <> (SELECT count(*) FROM race_slots WHERE reason <> '*')",
    "spent is not what joined": "SELECT t.id FROM tokens t WHERE uses_total - uses_left <> (SELECT coalesce(sum((convert_from(private, 'UTF8')::jsonb -> 'spent' ->> t.id)::int), 0) FROM journal WHERE type = 'node.joined')",
    "a note of a lane that did not join": "SELECT csr FROM race_notes r WHERE NOT EXISTS (SELECT FROM node_certs c WHERE c.csr_sha256 = r.csr)",
    "a note twice": "SELECT csr FROM race_notes GROUP BY 1 HAVING count(*) > 1",
    "a lane that joined without its note": "SELECT c.csr_sha256 FROM node_certs c JOIN journal j ON j.type = 'node.joined' AND convert_from(j.value, 'UTF8')::jsonb ->> 'csrSha256' = encode(c.csr_sha256, 'hex') WHERE convert_from(j.value, 'UTF8')::jsonb ->> 'attestor' = 'lane' AND NOT EXISTS (SELECT FROM race_notes r WHERE r.csr = c.csr_sha256)",
    "a joined event without what a rebuild needs": "SELECT event_id FROM journal j WHERE type = 'node.joined' AND NOT EXISTS (SELECT FROM node_certs c WHERE c.der = decode(convert_from(j.private, 'UTF8')::jsonb -> 'certificate' ->> 'der', 'base64') AND c.node_id::text = convert_from(j.private, 'UTF8')::jsonb -> 'node' ->> 'id')",
    "a use that its node does not have": "SELECT u FROM journal j, jsonb_array_elements(convert_from(private, 'UTF8')::jsonb -> 'uses') AS u WHERE type = 'node.joined' AND NOT EXISTS (SELECT FROM attestation_uses a WHERE a.attestor = u ->> 'attestor' AND a.subject = decode(u ->> 'subject', 'base64') AND convert_to(a.node_id::text, 'UTF8') = j.key)",
    "a binding that its node does not have": "SELECT b FROM journal j, jsonb_array_elements(convert_from(private, 'UTF8')::jsonb -> 'bindings') AS b WHERE type = 'node.joined' AND NOT EXISTS (SELECT FROM node_bindings a WHERE a.attestor = b ->> 'attestor' AND a.subject = decode(b ->> 'subject', 'base64') AND convert_to(a.node_id::text, 'UTF8') = j.key)",
    "two joins of one generation": "SELECT key FROM journal WHERE type = 'node.joined' GROUP BY key, convert_from(private, 'UTF8')::jsonb -> 'node' ->> 'generation' HAVING count(*) > 1",
    "a use by two joins": "SELECT u ->> 'attestor', u ->> 'subject' FROM journal j, jsonb_array_elements(convert_from(private, 'UTF8')::jsonb -> 'uses') AS u WHERE type = 'node.joined' GROUP BY 1, 2 HAVING count(*) > 1",
}  # fmt: skip
"""Queries that find nothing if all is well."""

_FINAL = {"joined": 1, "refused": 2, "invalid_input": 4, "unsupported": 5}


async def seed(connection: "asyncpg.Connection[asyncpg.Record]", secret_sha256: bytes) -> None:
    """Add a tenant with its pool, and the tokens."""
    await connection.execute(SETUP)
    await connection.execute("INSERT INTO tenants (id) VALUES ('acme')")
    await connection.execute("INSERT INTO pools (tenant, id) VALUES ('acme', 'web')")
    await connection.executemany(
        "INSERT INTO tokens (id, secret_sha256, tenant, pool, role, uses_total, uses_left, created_by)"
        " VALUES ($1, $2, 'acme', 'web', 'node', $3, $3, 'test')",
        [(token, secret_sha256, uses) for token, uses in TOKENS.items()],
    )


async def violations(
    connection: "asyncpg.Connection[asyncpg.Record]", asked: Sequence[Asked], race: Race
) -> list[str]:
    """Return everything that does not hold."""
    found = [
        f"{name}: {len(rows)}"
        for name, query in VIOLATIONS.items()
        if (rows := await connection.fetch(query))
    ]
    found += await _answers(connection, race.told)
    found += await _false_refusals(connection, asked)
    found += await _bound(connection)
    deadlocks = await connection.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    if deadlocks or any("40P01" in why for why in race.retried):
        found.append(f"deadlocks: {deadlocks}")
    return found


async def _answers(
    connection: "asyncpg.Connection[asyncpg.Record]", told: Sequence[Told]
) -> list[str]:
    """Compare what was told with each other and with the inbox."""
    found: Counter[str] = Counter()
    inbox = {
        row["digest"]: (row["outcome"], None if row["node_id"] is None else str(row["node_id"]))
        for row in await connection.fetch("SELECT digest, outcome, node_id FROM inbox")
    }
    ders: dict[bytes, str] = {
        row["der"]: str(row["node_id"])
        for row in await connection.fetch("SELECT der, node_id FROM node_certs")
    }
    final: dict[bytes, Told] = {}
    for one in told:
        if one.outcome not in _FINAL:
            found["an answer of no known kind"] += one.outcome != "unavailable"
            continue
        first = final.setdefault(one.digest, one)
        found["two answers to the same bytes"] += first != one
        recorded = inbox.get(one.digest)
        found["told otherwise than recorded"] += recorded != (_FINAL[one.outcome], one.node)
        if one.certificate is not None:
            found["told a certificate that nobody has"] += ders.get(one.certificate) != one.node
    found["recorded and told to nobody"] += len(inbox.keys() - final.keys())
    return [f"{name}: {count}" for name, count in found.items() if count]


async def _false_refusals(
    connection: "asyncpg.Connection[asyncpg.Record]", asked: Sequence[Asked]
) -> list[str]:
    """Whoever was refused for a conflict must have lost to something that exists."""
    by_digest = {one.digest: one for one in asked}
    uses = {(r[0], r[1]) for r in await connection.fetch("SELECT attestor, subject FROM attestation_uses")}  # fmt: skip
    bound = {(r[0], r[1]) for r in await connection.fetch("SELECT attestor, subject FROM node_bindings")}  # fmt: skip
    left = {r[0]: r[1] for r in await connection.fetch("SELECT id, uses_left FROM tokens")}
    keys = {r[0] for r in await connection.fetch("SELECT spki_sha256 FROM node_certs")}
    rows = await connection.fetch("SELECT csr_sha256 FROM node_certs WHERE NOT is_current")
    superseded = {row[0] for row in rows}
    found: Counter[str] = Counter()
    for row in await connection.fetch("SELECT request_sha256, attestor, reason FROM refusals"):
        one = by_digest.get(row["request_sha256"])
        if one is None:
            continue
        script, reason = one.script, row["reason"]
        spends = [one.token] if one.token else list(script.spend) if script else []
        true = {
            "used-up": any(left[token] == 0 for token in spends),
            "exhausted": any(left[token] == 0 for token in spends),
            "replayed": script is not None
            and any((one.attestor, subject(name)) in uses for name, _ in script.uses),
            "bound-elsewhere": script is not None
            and script.bind is not None
            and (one.attestor, subject(script.bind)) in bound,
            "no": script is not None and script.way == "refuse",
            "bad-secret": one.token is not None,
            "key-in-use": one.spki_sha256 in keys,
            "csr-reused": one.csr_sha256 in superseded,
        }
        found[f"false refusal {reason}"] += not true.get(reason, False)
    return [f"{name}: {count}" for name, count in found.items() if count]


async def _bound(connection: "asyncpg.Connection[asyncpg.Record]") -> list[str]:
    """The bound on published refusals was never exceeded in any window, and was reached."""
    claims: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in await connection.fetch("SELECT * FROM race_slots ORDER BY claimed_at"):
        claims[row["tenant"], row["attestor"], row["reason"]].append(row["claimed_at"].timestamp())
    found: list[str] = []
    reached: set[bool] = set()
    for bucket, times in claims.items():
        limit = LIMITS.per_attestor if bucket[2] == "*" else LIMITS.per_reason
        most = max(
            sum(at <= later < at + LIMITS.window_s - 1e-5 for later in times) for at in times
        )
        if most > limit:
            found.append(f"{bucket}: {most} of {limit}")
        reached.add(most == limit)
    return found if True in reached else [*found, "no bucket reached its bound"]
