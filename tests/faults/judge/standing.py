"""Who still stands: every renewal has its place in its node's history, and nodes end by a thief or an operator alone."""

from collections import Counter
from collections.abc import Mapping

from tests.faults.judge.answers import Outcomes
from tests.faults.judge.findings import Findings
from tests.faults.judge.ledger import EVICTED, Ledger
from tests.faults.judge.tables import Tables

_THIEVES = 2

_NONE_OF = {
    "renewed certificate that replaces not exactly one": (
        "SELECT j.csr FROM (SELECT convert_from(value, 'UTF8')::jsonb ->> 'csrSha256' AS csr FROM journal "
        "WHERE type = 'node.renewed') j LEFT JOIN node_certs was ON encode(was.renewed_by, 'hex') = j.csr "
        "GROUP BY 1 HAVING count(was.csr_sha256) <> 1"
    ),
    "certificate replaced without a renewal": (
        "SELECT c.csr_sha256 FROM node_certs c WHERE c.renewed_by IS NOT NULL AND NOT EXISTS (SELECT FROM journal j "
        "WHERE j.type = 'node.renewed' AND convert_from(j.value, 'UTF8')::jsonb ->> 'csrSha256' = encode(c.renewed_by, 'hex'))"
    ),
    "admission or renewal after the node's end": (
        "SELECT j.event_id FROM journal j JOIN journal e ON e.type IN ('node.evicted', 'node.banned') AND e.key = j.key "
        "AND e.seq < j.seq WHERE j.type IN ('node.joined', 'node.renewed')"
    ),
    "certificate of an ended node that still stands": (
        "SELECT c.csr_sha256 FROM node_certs c JOIN nodes n ON n.id = c.node_id "
        "WHERE n.state IN ('evicted', 'banned') AND c.revoked_at IS NULL AND c.not_after > watchword.now()"
    ),
    "revocation of an ended node without exactly one event": (
        "SELECT c.serial FROM node_certs c JOIN nodes n ON n.id = c.node_id LEFT JOIN "
        "(SELECT convert_from(value, 'UTF8')::jsonb ->> 'certificateSerial' AS serial FROM journal "
        "WHERE type = 'node.certificate.revoked') j ON j.serial = encode(c.serial, 'hex') "
        "WHERE n.state IN ('evicted', 'banned') AND c.revoked_at IS NOT NULL GROUP BY 1 HAVING count(j.serial) <> 1"
    ),
    "contested certificate without exactly one node.key.conflict": (
        "SELECT c.serial FROM node_certs c LEFT JOIN "
        "(SELECT convert_from(value, 'UTF8')::jsonb ->> 'certificateSerial' AS serial FROM journal "
        "WHERE type = 'node.key.conflict') j ON j.serial = encode(c.serial, 'hex') "
        "GROUP BY c.serial, c.contested_at HAVING count(j.serial) <> (c.contested_at IS NOT NULL)::int"
    ),
    "state without exactly one event of it": (
        "SELECT n.id FROM nodes n LEFT JOIN journal j ON j.type = 'node.' || n.state AND convert_from(j.key, 'UTF8') = n.id::text "
        "WHERE n.state IN ('evicted', 'banned') GROUP BY n.id HAVING count(j.seq) <> 1"
    ),
    "node that has spoken for itself and is adopting, or has not and is active": (
        "WITH last AS (SELECT DISTINCT ON (key) convert_from(key, 'UTF8') AS node, type FROM journal "
        "WHERE type IN ('node.joined', 'node.renewed', 'node.activated') ORDER BY key, seq DESC) "
        "SELECT n.id FROM nodes n LEFT JOIN last ON last.node = n.id::text "
        "WHERE n.state IN ('adopting', 'active') AND (n.state = 'active') <> (last.type <> 'node.joined')"
    ),
    "renewal without exactly one audit row": (
        "SELECT j.csr FROM (SELECT convert_from(value, 'UTF8')::jsonb ->> 'csrSha256' AS csr FROM journal "
        "WHERE type = 'node.renewed') j LEFT JOIN inbox i ON encode(i.csr_sha256, 'hex') = j.csr AND i.outcome = 1 "
        "LEFT JOIN audit_log a ON a.action = 'node.renew' AND a.detail ->> 'request' = encode(i.digest, 'hex') "
        "GROUP BY 1 HAVING count(a.id) <> 1"
    ),
}
"""Queries that must return nothing."""


async def check_standing(
    ledger: Ledger,
    outcomes: Outcomes,
    ends: Mapping[str, str],
    tables: Tables,
    findings: Findings,
) -> Counter[str]:
    """Compare the nodes that have ended with those that were to end; return how many nodes are in each state.

    `ends` has how each of them was to end, by the node's id.
    """
    for what, query in _NONE_OF.items():
        for row in await tables.rows(query):
            value = row[0]
            findings.wrong(what, value.hex() if isinstance(value, bytes) else value)
    thieves = Counter(
        asked.node for digest in outcomes.final if (asked := ledger.asked[digest]).kind == "stolen"
    )
    states = {
        row["id"]: row["state"]
        for row in await tables.rows("SELECT id::text AS id, state FROM nodes")
    }
    for node, state in states.items():
        meant = ends.get(node)
        if state in ("adopting", "active"):
            # One thief may not have come through: then nobody knows of two.
            if meant is not None and (meant != EVICTED or thieves[node] == _THIEVES):
                findings.lost("end of a node", f"{node}: {meant}")
        elif state != meant:
            findings.wrong("node that ended as it should not", f"{node}: {state}, {meant}")
    return Counter(states.values())
