"""The state machine of a renewal: a new certificate for a new key, before the old one ends.

```text
  not due ──▶ due (two thirds of the life, and some jitter) ──▶ key and CSR, on the disk
                                                                   │
       ┌────────────── new request under the same CSR, on the disk ◀──────────┐
       ▼                                                                      │
  send, listen ── nothing ──▶ the same bytes again                            │
       │                                                                      │
       ▼ an answer to exactly these bytes, on the disk                        │
    joined ──▶ check, install, forget the exchange                            │
    UNAVAILABLE ──▶ back off ─────────────────────────────────────────────────┤
    refused, INVALID_INPUT, UNSUPPORTED ──▶ say so, wait long ────────────────┘
```

The CSR stays until a certificate for it is installed, whatever is answered and however the process
ends. A renewal may have happened although its answer was lost; a second key from the same
certificate is what a thief would send, and costs the node its place.
"""

import asyncio
from datetime import datetime
from hashlib import sha256

import structlog
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from watchword.handlers.crypto.renewals import RenewalEvidence, sign, signed_text
from watchword.schemas.requests import RENEWAL_ATTESTOR, Claims
from watchword.schemas.responses import Joined, JoinResponse
from watchword.schemas.times import parse_rfc3339
from watchword.streams.agent.answers import read_answer
from watchword.streams.agent.asking import Asker, is_worth_sending
from watchword.streams.agent.backoff import Backoff, Pace
from watchword.streams.agent.current_key import current_key, reached
from watchword.streams.agent.errors import AnswerNotUsable
from watchword.streams.agent.exchange import Exchange, KeyKind, Round
from watchword.streams.agent.identity import Identity, NodeRecord
from watchword.streams.agent.installing import install_joined
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.progress import Reporter
from watchword.streams.agent.rounds import choose_key, make_round, new_request_id
from watchword.streams.agent.tpm.node_key import TpmKey
from watchword.streams.agent.tpm.renewing import KeysInTpm
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import TrustKeeper

_log = structlog.get_logger(__name__)

_SPREAD = 0.25
"""The part of what is left of a certificate's life over which a fleet's renewals are spread."""

_AFTER_REFUSAL_S = 3600.0
"""How long nothing is asked after a no: it will hardly become a yes, and each is an event somebody reads."""


class Renewer:
    """Renews what stands in a state directory that the caller has locked."""

    def __init__(
        self,
        keystore: Keystore,
        transport: Transport,
        trust: TrustKeeper,
        *,
        key_kind: KeyKind,
        reporter: Reporter,
        pace: Pace,
        tpm: KeysInTpm | None = None,
    ) -> None:
        """Take the parts; `tpm` is for a node whose key is in it, and every key after that."""
        self._tpm = tpm
        self._keystore = keystore
        self._transport = transport
        self._trust = trust
        self._key_kind: KeyKind = key_kind
        self._pace = pace
        self._clock = transport.clock
        self._asker = Asker(keystore, transport, trust, reporter=reporter, pace=pace)
        self._due: tuple[str, datetime] | None = None
        self._quiet_until_s = 0.0

    async def tend(self, *, now: bool = False) -> Identity | None:
        """Renew if it is time (or `now`), or go on with a renewal that was interrupted; return what is new.

        Raises:
            AnswerNotUsable: the service sent a certificate that is not for this node.
            StateUnusable: the disk.
        """
        identity = self._keystore.identity()
        if identity is None or self._pace.monotonic() < self._quiet_until_s:
            return None
        exchange = self._under_way(identity)
        if exchange is None:
            if not (now or self._is_due(identity.node)):
                return None
            exchange = await self._begun(identity)
        _log.info("renewing", node_id=identity.node.node_id, csr_sha256=exchange.csr_sha256.hex())
        return await self._renew(exchange, identity)

    async def _begun(self, identity: Identity) -> Exchange:
        """Return a fresh key and CSR, on the disk; in the TPM if the current key is."""
        serial = identity.node.serial
        key, _ = current_key(identity)
        if not isinstance(key, TpmKey):
            return self._keystore.begin_renewal(self._key_kind, serial)
        made = await asyncio.to_thread(reached(self._tpm).make)
        return self._keystore.begin_renewal_in_tpm(*made, serial)

    def _under_way(self, identity: Identity) -> Exchange | None:
        """Return the renewal that was begun for the current certificate."""
        exchange = self._keystore.renewal()
        if exchange is None or exchange.follows == identity.node.serial:
            return exchange
        # Installed before a crash could forget it, or of an identity that another join has replaced.
        self._keystore.drop_renewal()
        return None

    def _is_due(self, node: NodeRecord) -> bool:
        """Tell whether it is time. A clock that knows nothing tells nothing; expired is too late."""
        if self._clock.is_guess:
            return False
        if self._due is None or self._due[0] != node.serial:
            after, end = parse_rfc3339(node.renew_after), parse_rfc3339(node.not_after)
            self._due = node.serial, after + (end - after) * _SPREAD * self._pace.draw()
        return self._due[1] <= self._clock.now() < parse_rfc3339(node.not_after)

    async def _renew(self, exchange: Exchange, identity: Identity) -> Identity | None:
        trouble = Backoff(self._pace)
        trust = await self._trust.fresh()
        current = exchange.round()
        if current is not None and current.answer is None:
            current = current if is_worth_sending(current, trust, self._clock) else None
        while True:
            await self._trust.fresh()
            if current is None:
                current = await self._written(exchange, identity)
            if current.answer is None:
                current = await self._asker.ask(exchange, current)
            response = None if current is None else self._answer_of(current, exchange)
            current = None
            if response is None:
                continue
            self._clock.learn(parse_rfc3339(response.issued_at))
            if response.joined is not None:
                return await self._install(exchange, identity, response.joined)
            with self._keystore.writing():
                exchange.drop_round()
            if response.failed is None or response.failed.code != "UNAVAILABLE":
                self._after_refusal(identity, response)
                return None
            await trouble.wait()

    def _after_refusal(self, identity: Identity, response: JoinResponse) -> None:
        self._quiet_until_s = self._pace.monotonic() + self._pace.spread(_AFTER_REFUSAL_S)
        _log.error(
            "renewal refused",
            node_id=identity.node.node_id,
            outcome=response.outcome,
            not_after=identity.node.not_after,
        )

    async def _written(self, exchange: Exchange, identity: Identity) -> Round:
        """Return a new round, signed with the current key, on the disk."""
        key, leaf = current_key(identity)
        request_id = new_request_id()
        tbs_sha256 = sha256(leaf.tbs_certificate_bytes).digest()
        text = signed_text(tbs_sha256, exchange.csr_sha256, request_id)
        spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if isinstance(key, TpmKey):
            vouched = await reached(self._tpm).vouch(key.pem, exchange.key_pem(), text)
            evidence = RenewalEvidence(tbs_sha256, spki, vouched.signature, vouched.proof)
        else:
            evidence = RenewalEvidence(tbs_sha256, spki, sign(key, text))
        made = make_round(
            exchange,
            attestor=RENEWAL_ATTESTOR,
            role=identity.node.role,
            payload=evidence.encode(),
            claims=Claims(),
            key=choose_key(self._trust.current.key_set, self._clock),
            has_reply_key=self._transport.answers_are_shared,
            kind="renew",
            request_id=request_id,
        )
        with self._keystore.writing():
            exchange.save(made)
        return made

    async def _install(self, exchange: Exchange, identity: Identity, joined: Joined) -> Identity:
        node = identity.node
        if (joined.node_id, joined.tenant, joined.role) != (node.node_id, node.tenant, node.role):
            message = "the renewed certificate is another node's"
            raise AnswerNotUsable(message)
        found = await install_joined(self._keystore, self._trust, exchange, joined)
        self._keystore.drop_renewal()
        _log.info("renewed", node_id=node.node_id, not_after=found.node.not_after)
        return found

    def _answer_of(self, current: Round, exchange: Exchange) -> JoinResponse | None:
        token = (current.answer or "").encode()
        return read_answer(
            token,
            trust=self._trust.current,
            exchange=exchange,
            sent=current,
            now=self._clock.now(),
        )
