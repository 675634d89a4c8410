"""Each admitted CSR: one node, one certificate, one event, one spend; and the certificate is good."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.faults.judge.answers import Outcomes
from tests.faults.judge.findings import Findings
from tests.faults.judge.ledger import JOINED, Ledger
from tests.faults.judge.tables import Row, Tables


@dataclass(frozen=True, slots=True)
class Trust:
    """What an agent of the deployment is told to trust."""

    signing: bytes
    """32 raw bytes of Ed25519."""
    authority: bytes
    """The CA's certificate, DER."""
    trust_domain: str


async def check_admissions(
    ledger: Ledger,
    outcomes: Outcomes,
    csr_keys: dict[bytes, bytes],
    trust: Trust,
    tables: Tables,
    findings: Findings,
) -> int:
    """Compare answers with nodes, certificates, tokens and events; return how many nodes there are.

    `csr_keys` has the SHA-256 of the public key (SubjectPublicKeyInfo) of each CSR, by the CSR's.
    """
    certificates = await tables.rows(
        "SELECT c.csr_sha256, c.node_id::text AS node_id, c.der, c.serial, c.is_current, c.spki_sha256, "
        "c.tbs_sha256, n.tenant, n.generation, n.state, "
        # Joined: as a subquery of each row it is a look at all of them, once they are too many for a table in memory.
        "was.renewed_by IS NOT NULL AS is_renewal FROM node_certs c JOIN nodes n ON n.id = c.node_id "
        "LEFT JOIN (SELECT DISTINCT renewed_by FROM node_certs) was ON was.renewed_by = c.csr_sha256"
    )
    by_csr = {bytes(row["csr_sha256"]): row for row in certificates}
    _compare_answers(ledger, outcomes, by_csr, findings)
    authority = x509.load_der_x509_certificate(trust.authority)
    for row in certificates:
        problem = _certificate_problem(row, authority, trust.trust_domain, csr_keys)
        if problem is not None:
            findings.wrong("certificate", f"{row['node_id']}: {problem}")
    await _check_tables(tables, findings)
    await _check_tokens(ledger, outcomes, tables, findings)
    _check_generations(certificates, findings)
    nodes: int = await tables.one("SELECT count(*) FROM nodes")
    return nodes


def _compare_answers(
    ledger: Ledger, outcomes: Outcomes, by_csr: dict[bytes, Row], findings: Findings
) -> None:
    joined: dict[bytes, set[tuple[str | None, bytes | None]]] = defaultdict(set)
    for digest, answer in outcomes.final.items():
        csr = ledger.asked[digest].csr_sha256
        if answer.outcome == JOINED and csr is not None:
            joined[csr].add((answer.node, answer.leaf))
    for csr, said in joined.items():
        row = by_csr.get(csr)
        if len(said) > 1:
            findings.duplicated("CSR with two nodes or certificates", csr.hex())
        if row is None:
            findings.lost("joined CSR without a certificate row", csr.hex())
        elif (row["node_id"], bytes(row["der"])) not in said:
            findings.wrong("certificate in the answer is not the one in the table", csr.hex())
    for csr in by_csr.keys() - joined.keys():
        findings.lost("admission that nobody was told of", csr.hex())


def _certificate_problem(
    row: Row, authority: x509.Certificate, trust_domain: str, csr_keys: dict[bytes, bytes]
) -> str | None:
    certificate = x509.load_der_x509_certificate(bytes(row["der"]))
    key = authority.public_key()
    algorithm = certificate.signature_hash_algorithm
    if not isinstance(key, ec.EllipticCurvePublicKey) or algorithm is None:
        return "not signed by an ECDSA key"
    try:
        key.verify(certificate.signature, certificate.tbs_certificate_bytes, ec.ECDSA(algorithm))
    except InvalidSignature:
        return "not signed by the CA"
    spki = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    uri = f"spiffe://{trust_domain}/tenant/{row['tenant']}/node/{row['node_id']}"
    problems = {
        "issuer": certificate.issuer != authority.subject,
        "key is not the CSR's": sha256(spki).digest() != csr_keys.get(bytes(row["csr_sha256"])),
        "row has another key": sha256(spki).digest() != bytes(row["spki_sha256"]),
        "row has another serial": certificate.serial_number.to_bytes(16, "big")
        != bytes(row["serial"]),
        "row has another TBS": sha256(certificate.tbs_certificate_bytes).digest()
        != bytes(row["tbs_sha256"]),
        f"names {uris}": uris != [uri] or not names.critical,
        "is a CA": constraints.value.ca or not constraints.critical,
        "usage": list(usages.value) != [ExtendedKeyUsageOID.CLIENT_AUTH],
        "lives longer than the CA": certificate.not_valid_after_utc > authority.not_valid_after_utc,
    }
    return next((problem for problem, holds in problems.items() if holds), None)


_NONE_OF = {
    "node without exactly one current certificate": (
        "SELECT n.id FROM nodes n WHERE n.state IN ('adopting', 'active') AND "
        "(SELECT count(*) FROM node_certs c WHERE c.node_id = n.id AND c.is_current) <> 1"
    ),
    "serial on two certificates": ("SELECT serial FROM node_certs GROUP BY 1 HAVING count(*) > 1"),
    "certificate without exactly one node.joined or node.renewed": (
        "SELECT c.csr_sha256 FROM node_certs c LEFT JOIN "
        "(SELECT convert_from(value, 'UTF8')::jsonb ->> 'csrSha256' AS csr FROM journal WHERE type IN ('node.joined', 'node.renewed')) j "
        "ON j.csr = encode(c.csr_sha256, 'hex') GROUP BY 1 HAVING count(j.csr) <> 1"
    ),
    "node.joined or node.renewed without a certificate": (
        "SELECT j.event_id FROM journal j LEFT JOIN node_certs c "
        "ON encode(c.csr_sha256, 'hex') = convert_from(j.value, 'UTF8')::jsonb ->> 'csrSha256' "
        "WHERE j.type IN ('node.joined', 'node.renewed') AND (c.csr_sha256 IS NULL "
        "OR c.node_id::text <> convert_from(j.value, 'UTF8')::jsonb ->> 'nodeId')"
    ),
    "CSR or key claimed by another than its node": (
        "SELECT c.csr_sha256 FROM node_certs c WHERE NOT EXISTS (SELECT FROM admission_claims a "
        "WHERE a.kind = 'csr' AND a.subject = c.csr_sha256 AND a.node_id = c.node_id) "
        "OR NOT EXISTS (SELECT FROM admission_claims a WHERE a.kind = 'key' AND a.subject = c.spki_sha256 AND a.node_id = c.node_id)"
    ),
    "claim that nobody won": (
        "SELECT a.subject FROM admission_claims a WHERE NOT EXISTS (SELECT FROM node_certs c "
        "WHERE c.node_id = a.node_id AND a.subject IN (c.csr_sha256, c.spki_sha256))"
    ),
    "key on two nodes": (
        "SELECT spki_sha256 FROM node_certs GROUP BY 1 HAVING count(DISTINCT node_id) > 1"
    ),
    "joined inbox row without its node": (
        "SELECT i.digest FROM inbox i WHERE i.outcome = 1 AND NOT EXISTS (SELECT FROM node_certs c "
        "WHERE c.csr_sha256 = i.csr_sha256 AND c.node_id = i.node_id)"
    ),
    "admission after its token was revoked": (
        "SELECT j.event_id FROM journal j JOIN journal r ON r.type = 'token.revoked' "
        "AND convert_from(r.key, 'UTF8') = convert_from(j.value, 'UTF8')::jsonb ->> 'tokenId' AND r.seq < j.seq "
        "WHERE j.type = 'node.joined'"
    ),
    "join without exactly one audit row": (
        "SELECT c.csr_sha256 FROM node_certs c LEFT JOIN inbox i ON i.csr_sha256 = c.csr_sha256 AND i.outcome = 1 "
        "LEFT JOIN audit_log a ON a.action = 'node.join' AND a.detail ->> 'request' = encode(i.digest, 'hex') "
        "WHERE NOT EXISTS (SELECT FROM node_certs was WHERE was.renewed_by = c.csr_sha256) GROUP BY 1 HAVING count(a.id) <> 1"
    ),
}
"""Queries that must return nothing."""


async def _check_tables(tables: Tables, findings: Findings) -> None:
    for what, query in _NONE_OF.items():
        for row in await tables.rows(query):
            value = row[0]
            findings.wrong(what, value.hex() if isinstance(value, bytes) else value)


async def _check_tokens(
    ledger: Ledger, outcomes: Outcomes, tables: Tables, findings: Findings
) -> None:
    """Spends are admissions: by the events in the journal, and by the answers."""
    rows = await tables.rows(
        "SELECT t.id, t.uses_total, t.uses_left, count(j.token) AS admissions FROM tokens t LEFT JOIN "
        "(SELECT convert_from(value, 'UTF8')::jsonb ->> 'tokenId' AS token FROM journal WHERE type = 'node.joined') j "
        "ON j.token = t.id GROUP BY 1, 2, 3"
    )
    admitted: dict[str, set[bytes]] = defaultdict(set)
    for digest, answer in outcomes.final.items():
        asked = ledger.asked[digest]
        if asked.token is None or asked.csr_sha256 is None:
            continue
        if answer.outcome == JOINED:
            admitted[asked.token].add(asked.csr_sha256)
    for row in rows:
        spent = row["uses_total"] - row["uses_left"]
        if spent > row["admissions"]:
            findings.lost("spend without an admission", f"token {row['id']}: {spent}")
        elif spent < row["admissions"]:
            findings.duplicated("admission without a spend", f"token {row['id']}: {spent}")
        if len(admitted[row["id"]]) > row["uses_total"]:
            findings.duplicated("token admitted more than its uses", row["id"])
    uses_left = {row["id"]: row["uses_left"] for row in rows}
    for row in await tables.rows("SELECT digest FROM inbox WHERE reason = 'join-token:used-up'"):
        refused = ledger.asked.get(bytes(row["digest"]))
        if refused is not None and refused.token is not None and uses_left[refused.token]:
            findings.wrong("refused as used up while uses are left", refused.token)


def _check_generations(certificates: Sequence[Row], findings: Findings) -> None:
    """A node that was re-keyed n times has n + 1 certificates that replace none, and is of generation n + 1."""
    counts = Counter(row["node_id"] for row in certificates if not row["is_renewal"])
    for node, generation in {row["node_id"]: row["generation"] for row in certificates}.items():
        if counts[node] != generation:
            findings.wrong("generation", f"{node}: {generation} with {counts[node]} certificates")
