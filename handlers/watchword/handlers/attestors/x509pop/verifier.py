"""Admits a machine that holds the key of a certificate from a trusted CA, or of our own expired one."""

import secrets
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    NodeCertificate,
    Subject,
    refuser,
)
from watchword.handlers.attestors.x509pop.chain import Unacceptable, key_of, load, verify_path
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.evidence import (
    NONCE_BYTES,
    PossessionEvidence,
    signed_text,
)
from watchword.handlers.attestors.x509pop.reasons import REASONS
from watchword.handlers.crypto.chains import CertificateKey
from watchword.handlers.errors import SealBroken, SignatureBroken
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import NodeId, Role

ID = "x509pop"

CHALLENGE_TTL = timedelta(minutes=2)

refuse = refuser(ID)


class X509PopAttestor:
    """Proves possession of a certified key, over a nonce of ours and the CSR."""

    id = ID
    version = "1"
    roles: frozenset[Role] = frozenset(("node", "site"))
    reasons = REASONS

    def __init__(self, config: Config) -> None:
        """Take the CAs and the rules; without rules nobody but our own nodes gets in."""
        self._config = config

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Challenge the holder of an acceptable certificate, and admit who answers.

        Raises:
            Refused: see `reasons`.
        """
        # 1. The evidence is certificates within their bounds; costs are bounded before any signature.
        # 2. Whose it is: our own, which must be the node's current one and expired within the grace;
        #    or an operator's, whose path, key usage and fields lead to a rule (RFC 5280, 6.1).
        # 3. Without a signature it is round one: a fresh nonce, bound by the state to this leaf.
        # 4. The state opens for this CSR and role, has not expired, and is for this very leaf.
        # 5. The signature over label, trust domain, role, nonce and CSR is the leaf key's.
        # 6. One certificate is one node's: its key is bound for good.

        # Step 1
        context.step(1, "the evidence is certificates within their bounds")
        shown = _decoded(evidence)
        try:
            leaf = load(shown.leaf)
            intermediates = [load(der) for der in shown.intermediates]
            key = key_of(leaf)
        except Unacceptable:
            raise refuse("certificate") from None

        # Step 2
        context.step(2, "the certificate is a node's own, or a rule takes it")
        tbs = sha256(leaf.tbs_certificate_bytes).digest()
        context.found(
            certificate=tbs.hex,
            not_after=lambda: leaf.not_valid_after_utc,
            intermediates=len(intermediates),
        )
        ours = await context.nodes.certificate(tbs)
        context.found(issued_here=ours is not None)
        if ours is not None:
            grant = await self._own(ours, tbs, context)
        else:
            grant = await self._operators(leaf, intermediates, tbs, context)

        # Step 3
        context.step(3, "it is answered by a signature; without one it gets a challenge")
        context.found(tenant=grant.tenant, pool=grant.pool, signed=bool(shown.signature))
        if not shown.signature:
            nonce = secrets.token_bytes(NONCE_BYTES)
            return Challenge(
                nonce, context.seal_state(nonce + tbs, CHALLENGE_TTL), context.now + CHALLENGE_TTL
            )

        # Step 4
        context.step(
            4, "the state opens for this CSR and role, has not expired, and is for this certificate"
        )
        try:
            state = context.open_state()
        except SealBroken:
            raise refuse("challenge") from None
        if state is None or state[NONCE_BYTES:] != tbs:
            raise refuse("challenge")

        # Step 5
        context.step(5, "the certificate's key signed trust domain, role, nonce and CSR")
        text = signed_text(
            self._config.trust_domain, context.role, state[:NONCE_BYTES], context.csr_sha256
        )
        if not _holds(key, shown.signature, text):
            raise refuse("signature")

        # Step 6
        context.step(6, "the certificate's key is one node's, for good")
        context.found(rekeys=lambda: None if grant.node_id is None else str(grant.node_id))
        return grant

    async def _own(self, ours: NodeCertificate, tbs: bytes, context: JoinContext) -> Admission:
        """Return the re-keying of the node that a certificate of ours belongs to."""
        node = await context.nodes.get(ours.node_id)
        if node is None or not ours.is_current or ours.revoked:
            raise refuse("superseded")
        if node.state not in ("adopting", "active"):
            raise refuse("node-state")
        if context.now < ours.not_after:
            raise refuse("use-renewal")
        if context.now >= ours.not_after + self._config.own_grace:
            raise refuse("expired")
        if node.role not in self.roles or node.role != context.role:
            raise refuse("wrong-role")
        spki = sha256(
            context.public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        ).digest()
        # The statement is about the certificate's key; another key would have to be stated anew.
        if ours.node_key_uri is not None and spki != ours.spki_sha256:
            raise refuse("statement")
        return Admission(
            tenant=node.tenant,
            role=node.role,
            pool=node.pool,
            site=node.site,
            node_id=node.id,
            allowed_kinds=ours.allowed_kinds,
            node_key_uri=ours.node_key_uri,
            hardware_key=node.hardware_key,
            subjects=(Subject("spki", ours.spki_sha256.hex()),),
            certificate=tbs,
        )

    async def _operators(
        self,
        leaf: x509.Certificate,
        intermediates: Sequence[x509.Certificate],
        tbs: bytes,
        context: JoinContext,
    ) -> Admission:
        """Return the admission that the first rule gives to an operator's certificate."""
        rule = self._rule_for(leaf, intermediates, context)
        spki = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        bind = sha256(b"spki\0" + spki).digest()
        node_id: NodeId | None = None
        if rule.reattest:
            node_id = await context.bindings.get(bind)
        return Admission(
            tenant=rule.tenant,
            role=context.role,
            pool=rule.pool,
            site=rule.site,
            node_id=node_id,
            bind=bind,
            allowed_kinds=rule.allowed_kinds,
            subjects=(
                Subject("certificate", tbs.hex()),
                Subject("spki", sha256(spki).hexdigest()),
            ),
        )

    def _rule_for(
        self,
        leaf: x509.Certificate,
        intermediates: Sequence[x509.Certificate],
        context: JoinContext,
    ) -> Rule:
        leads_to: dict[tuple[x509.Certificate, ...], bool] = {}
        for rule in self._config.rules:
            if rule.authorities not in leads_to:
                leads_to[rule.authorities] = _leads(leaf, intermediates, rule, context)
            if leads_to[rule.authorities] and rule.takes(leaf, context.role):
                return rule
        raise refuse("no-rule" if any(leads_to.values()) else "chain")


def _leads(
    leaf: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    rule: Rule,
    context: JoinContext,
) -> bool:
    try:
        verify_path(leaf, intermediates, rule.authorities, context.now)
    except SignatureBroken:
        return False
    return True


def _decoded(evidence: Evidence) -> PossessionEvidence:
    try:
        return PossessionEvidence.decode(evidence.payload)
    except SchemaError:
        raise refuse("malformed") from None


def _holds(key: CertificateKey, signature: bytes, text: bytes) -> bool:
    """Tell whether the signature is this key's: ECDSA with SHA-256 on P-256 and SHA-384 on larger curves, RSASSA-PSS with SHA-256, or Ed25519."""
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            digest = SHA256() if key.curve.key_size <= 256 else SHA384()  # noqa: PLR2004 - bits
            key.verify(signature, text, ec.ECDSA(digest))
        elif isinstance(key, Ed25519PublicKey):
            key.verify(signature, text)
        else:
            pss = padding.PSS(padding.MGF1(SHA256()), SHA256().digest_size)
            key.verify(signature, text, pss, SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True
