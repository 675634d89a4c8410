"""Admits a machine by its TPM: the endorsement key is ours, the attestation key is in the same chip, and it quotes."""

import hmac
import secrets
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

from watchword.handlers.attestor import (
    Admission,
    Challenge,
    Deferral,
    Evidence,
    JoinContext,
    Subject,
    refuser,
)
from watchword.handlers.attestors.tpm.algorithms import BANKS
from watchword.handlers.attestors.tpm.config import Config
from watchword.handlers.attestors.tpm.credential import SECRET_BYTES, make_credential
from watchword.handlers.attestors.tpm.endorsement import check_endorsement
from watchword.handlers.attestors.tpm.evidence import (
    Certification,
    TpmAnswer,
    TpmChallenge,
    TpmEvidence,
)
from watchword.handlers.attestors.tpm.keys import UnfitKey, check_ak, check_ek
from watchword.handlers.attestors.tpm.names import Names
from watchword.handlers.attestors.tpm.policy import (
    Met,
    NotMet,
    PcrPolicy,
    UnreadablePolicy,
    cached_policy,
    judge,
)
from watchword.handlers.attestors.tpm.quote import (
    BadQuote,
    Quote,
    Stale,
    check_certified,
    check_quote,
    qualifying,
)
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.reasons import REASONS
from watchword.handlers.attestors.tpm.statement import (
    StatementUnproved,
    check_statement,
    statement_of,
)
from watchword.handlers.attestors.tpm.structures import Public, read_public_2b
from watchword.handlers.crypto.keypolicy import PublicKey
from watchword.handlers.errors import SealBroken
from watchword.schemas.canonical import canonical
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import Role

ID = "tpm"

CHALLENGE_TTL = timedelta(minutes=5)
"""A discrete TPM takes seconds for an RSA key, and an agent may have to wait its turn for the chip."""

_DIGEST = 32

refuse = refuser(ID)


class TpmAttestor:
    """Proves a TPM that is ours, a key in it that only signs what the TPM knows, and what was booted."""

    id = ID
    version = "1"
    roles: frozenset[Role] = frozenset(("node", "site", "ramdisk"))
    reasons = REASONS

    def __init__(self, config: Config) -> None:
        """Take the vendors' CAs and the waiting room."""
        self._config = config

    def proves_key(self, statement: str, proof: bytes, text: bytes, key: PublicKey) -> bool:
        """See `watchword.handlers.crypto.renewals.ProvesKeys`; the recipe is `check_statement`'s."""
        try:
            check_statement(statement, proof, text, key)
        except StatementUnproved:
            return False
        return True

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission | Deferral:
        """Challenge a TPM that may come in, and admit it by what it makes of the challenge.

        Raises:
            Refused: see `reasons`.
        """
        # 1. The evidence is public areas and certificates within their bounds; the keys are fit for their
        #    parts (TPM 2.0 Library, Part 1, 24 and 25).
        # 2. Whose TPM: enrolled, bound to a node, or genuine by its certificate and in the waiting room.
        # 3. The pool's policy can be read.
        # 4. Without an answer it is round one: a credential for this EK over this AK's name.
        # 5. The state opens for this CSR and role, has not expired, and is for these very keys.
        # 6. The secret: EK and AK are in one TPM.
        # 7. The quote: the AK's, for this challenge and this CSR, over the values that are shown.
        # 8. The policy: bank, PCRs, values, log and events.
        # 9. A certification of the CSR's own key, if there is one; else nothing is said of the node's key.
        # 10. Values that are not listed are those first seen of the node; at its first join they are noted with it.
        # 11. A TPM from the waiting room, or enrolled so, waits for an operator.

        # Step 1
        context.step(
            1,
            "public areas and certificates are within their bounds, and the keys fit for their parts",
        )
        shown = _decoded(evidence)
        ek, ak = _keys(shown)

        # Step 2
        context.step(2, "the TPM is enrolled, bound to a node, or genuine and in the waiting room")
        names = Names.of(ek, ak)
        context.found(
            ek=names.ek.hex, ak=names.ak_sha256.hex, ek_certificate=bool(shown.certificate)
        )
        grant, waits = await self._grant(shown, ek, names, context)

        # Step 3
        context.step(3, "the pool's policy can be read")
        context.found(tenant=grant.tenant, pool=grant.pool, waits_for_an_operator=waits)
        policy = await _policy(grant, context)

        # Step 4
        context.step(4, "it answers a challenge; without an answer it gets one")
        context.found(
            pcrs=lambda: ", ".join(map(str, policy.pcrs)), answered=shown.answer is not None
        )
        if shown.answer is None:
            return _challenge(ek, names, policy, context)
        answer = shown.answer

        # Step 5
        context.step(
            5, "the state opens for this CSR and role, has not expired, and is for these very keys"
        )
        state = _opened(context)  # compared to its end, so it has no other length either
        if state[2 * _DIGEST :] != names.ek + names.ak_sha256:
            raise refuse("challenge")
        secret, qualified_by = state[:_DIGEST], state[_DIGEST : 2 * _DIGEST]

        # Step 6
        context.step(6, "endorsement key and attestation key are in one TPM")
        if not hmac.compare_digest(answer.secret, secret):
            raise refuse("activation")

        # Step 7
        context.step(
            7,
            "the quote is the attestation key's, for this challenge and CSR, over the values shown",
        )
        quote = _quote(answer, ak, qualified_by)

        # Step 8
        context.step(8, "the policy is met: bank, PCRs, values, log and events")
        context.found(
            resets=quote.clock.resets,
            restarts=quote.clock.restarts,
            firmware=lambda: f"{quote.firmware:016x}",
        )
        try:
            met = judge(policy, quote, answer.log)
        except NotMet as error:
            raise refuse(error.reason, tenant_id=grant.tenant) from None

        # Step 9
        context.step(9, "a certification of the CSR's own key holds, if there is one")
        context.found(certification=answer.certification is not None)
        if answer.certification is not None:
            _check_certification(answer.certification, ak, qualified_by, context)
            grant = replace(grant, node_key_uri=statement_of(ak))

        # Step 10
        context.step(10, "values that are not listed are those first seen of the node")
        context.found(unlisted=lambda: ", ".join(map(str, sorted(met.unlisted))) or "none")
        if met.unlisted:
            seen = await _first_seen(met, names, grant, context)
            grant = replace(grant, subjects=grant.subjects + seen)

        # Step 11
        context.step(11, "an operator agrees, if it has to wait")
        if waits and not await context.requests.approved(names.ek, grant):
            return context.request_approval(names.ek, grant, _facts(names, quote, met.bank))
        return grant

    async def _grant(
        self, shown: TpmEvidence, ek: Public, names: Names, context: JoinContext
    ) -> tuple[Admission, bool]:
        """Return what this TPM would be admitted as, and whether an operator has to agree."""
        subject = names.ek
        enrolled = await context.anchors.tpm_endorsement(subject)
        if enrolled is not None and enrolled.revoked:
            raise refuse("revoked")
        bound = await context.bindings.get(subject)
        node = None if bound is None else await context.nodes.get(bound)
        place = enrolled or self._config.waiting_room
        at = node or place
        # The core keeps a hardware key to one node: one chip is one node, whatever it tells of its key.
        chip = names.chip
        subjects = (
            Subject("ek", subject.hex()),
            Subject("ek-key", chip),
            Subject("ak", names.ak_sha256.hex()),
        )
        if at is None:
            raise refuse("not-enrolled")
        if node is None and enrolled is None:
            if not shown.certificate:
                raise refuse("not-enrolled")
            self._check_certificate(shown, ek, context)
        role = node.role if node else enrolled.role if enrolled else context.role
        if role != context.role:
            raise refuse("wrong-role")
        grant = Admission(
            tenant=at.tenant,
            role=context.role,
            pool=at.pool,
            site=at.site,
            node_id=bound,
            bind=subject,
            allowed_kinds=() if place is None else place.allowed_kinds,
            hardware_key=f"urn:bc:tpm-ek:{chip}",
            subjects=subjects,
        )
        return grant, node is None and (enrolled is None or enrolled.approval)

    def _check_certificate(self, shown: TpmEvidence, ek: Public, context: JoinContext) -> None:
        try:
            check_endorsement(
                shown.certificate, shown.intermediates, ek, self._config.anchors, context.now
            )
        except Malformed:
            raise refuse("ek-certificate") from None


def _decoded(evidence: Evidence) -> TpmEvidence:
    try:
        return TpmEvidence.decode(evidence.payload)
    except SchemaError:
        raise refuse("malformed") from None


def _keys(shown: TpmEvidence) -> tuple[Public, Public]:
    try:
        ek, ak = read_public_2b(shown.ek), read_public_2b(shown.ak)
    except Malformed:
        raise refuse("malformed") from None
    try:
        check_ek(ek)
    except UnfitKey:
        raise refuse("ek-unfit") from None
    try:
        check_ak(ak)
    except UnfitKey:
        raise refuse("ak-unfit") from None
    return ek, ak


async def _policy(grant: Admission, context: JoinContext) -> PcrPolicy:
    found = await context.anchors.tpm_policy(grant.tenant, grant.pool)
    if found is None:
        raise refuse("policy")
    try:
        return cached_policy(canonical(found.policy))
    except (UnreadablePolicy, SchemaError):
        raise refuse("policy") from None


def _challenge(ek: Public, names: Names, policy: PcrPolicy, context: JoinContext) -> Challenge:
    secret = secrets.token_bytes(SECRET_BYTES)
    credential = make_credential(ek, names.ak, secret)
    asked = TpmChallenge(
        credential.id_object, credential.encrypted_secret, policy.bank_names, policy.pcrs
    ).encode()
    state = secret + qualifying(asked, context.csr_sha256)
    state += names.ek + names.ak_sha256
    return Challenge(asked, context.seal_state(state, CHALLENGE_TTL), context.now + CHALLENGE_TTL)


def _opened(context: JoinContext) -> bytes:
    """Return the state of round one: secret, qualifying data, and the hashes of EK and AK."""
    try:
        state = context.open_state()
    except SealBroken:
        raise refuse("challenge") from None
    if state is None:
        raise refuse("challenge")
    return state


def _quote(answer: TpmAnswer, ak: Public, qualified_by: bytes) -> Quote:
    try:
        return check_quote(answer.quote, answer.signature, answer.values, ak, qualified_by)
    except Stale:
        raise refuse("stale") from None
    except BadQuote:
        raise refuse("quote") from None
    except Malformed:
        raise refuse("malformed") from None


def _check_certification(
    said: Certification, ak: Public, qualified_by: bytes, context: JoinContext
) -> None:
    try:
        check_certified(
            said.area, said.attest, said.signature, ak, qualified_by, context.public_key
        )
    except Malformed:
        raise refuse("certify") from None


async def _first_seen(
    met: Met, names: Names, grant: Admission, context: JoinContext
) -> tuple[Subject, ...]:
    """Return what is to be noted of a node's values; refuse others than those that were noted.

    Notes are subjects of the node, so they are written in the transaction of its admission and go with it:
    that a PCR was seen, and which value it had.
    """
    noted: list[Subject] = []
    for pcr, value in met.unlisted.items():
        where = f"{names.chip}/{BANKS[met.bank]}/{pcr}"
        was_seen, as_now = Subject("tpm-pcr", where), Subject("tpm-pcr", f"{where}/{value.hex()}")
        if grant.node_id is not None and grant.node_id in await context.nodes.with_subject(
            was_seen
        ):
            if grant.node_id not in await context.nodes.with_subject(as_now):
                raise refuse("pcr-changed", tenant_id=grant.tenant)
            continue
        noted += [was_seen, as_now]
    return tuple(noted)


def _facts(names: Names, quote: Quote, bank: int) -> dict[str, str]:
    """Return what an operator sees of a TPM that waits; all of it was proved."""
    values = b"".join(value for _, value in sorted(quote.of(bank).items()))
    return {
        "ek": names.ek.hex(),
        "ak": names.ak_sha256.hex(),
        "pcrs": sha256(values).hexdigest(),
        "resets": str(quote.clock.resets),
        "restarts": str(quote.clock.restarts),
        "firmware": f"{quote.firmware:016x}",
    }
