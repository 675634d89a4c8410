"""The state machine of a join.

```text
            ┌──────────────── fresh evidence, new request, on the disk ◀─────────────┐
            ▼                                                                        │
  ┌──▶ send, listen ── nothing ──▶ send the same bytes again                         │
  │         │                                                                        │
  │         ▼ an answer to exactly these bytes, on the disk                          │
  │    challenge ──▶ answer, new request, on the disk ─┐                             │
  └────────────────────────────────────────────────────┘                             │
            approval ──▶ wait as told ───────────────────────────────────────────────┤
            UNAVAILABLE ──▶ back off ────────────────────────────────────────────────┘
            joined ──▶ check, install, forget the exchange
            refused, INVALID_INPUT, UNSUPPORTED ──▶ forget the exchange, stop
```

A process that dies anywhere in this goes on from the disk. A round that `is_worth_sending` no longer
is not sent again, although nothing answered it: it could only earn a refusal that the machine does
not deserve. A fresh round under the same CSR takes its place; if the lost one was admitted, it gets
that admission.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog

from watchword.handlers.prover import NoEvidence, Prover
from watchword.schemas.canonical import unb64
from watchword.schemas.ids import Role
from watchword.schemas.requests import Claims
from watchword.schemas.responses import Deferred, Failure, Joined, JoinResponse
from watchword.schemas.times import parse_rfc3339
from watchword.streams.agent.answers import read_answer
from watchword.streams.agent.asking import Asker, is_worth_sending
from watchword.streams.agent.backoff import Backoff, Pace
from watchword.streams.agent.claims import read_claims
from watchword.streams.agent.errors import JoinRefused, RequestNotUsable
from watchword.streams.agent.exchange import Exchange, KeyKind, Round
from watchword.streams.agent.identity import Identity
from watchword.streams.agent.installing import install_joined
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.progress import Reporter
from watchword.streams.agent.rounds import choose_key, make_round
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import Trust, TrustKeeper

_log = structlog.get_logger(__name__)

_MAX_CHALLENGES = 8
"""In a row, without pause; then the agent backs off and begins anew."""

_NOT_USABLE: dict[Failure, str] = {
    "INVALID_INPUT": "the service cannot read the requests of this agent, perhaps of another release",
    "UNSUPPORTED": "the service does not have the attestor that this agent asks for",
}


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """How to join."""

    role: Role = "node"
    key_kind: KeyKind = "p256"
    key_in_tpm: Callable[[], tuple[bytes, bytes]] | None = None
    """Makes a key in the TPM; returns its file and a CSR that it has signed, or raises `NoEvidence`."""
    claims: Callable[[], Claims] = read_claims
    again: bool = False
    """Join although there is an identity: after an eviction, say."""
    anew: bool = False
    """Do not go on with a round that was interrupted; key and CSR are kept all the same."""
    give_up_after_s: float | None = None


class Joiner:
    """One run of a join in a state directory that the caller has locked."""

    def __init__(
        self,
        keystore: Keystore,
        transport: Transport,
        trust: TrustKeeper,
        prover: Prover,
        options: JoinOptions,
        *,
        reporter: Reporter,
        pace: Pace,
    ) -> None:
        """Take the parts."""
        self._keystore = keystore
        self._transport = transport
        self._trust = trust
        self._prover = prover
        self._options = options
        self._reporter = reporter
        self._pace = pace
        self._clock = transport.clock
        self._asker = Asker(keystore, transport, trust, reporter=reporter, pace=pace)
        self._trouble = Backoff(pace)
        self._challenges = 0

    async def run(self, exchange: Exchange) -> Identity:
        """Return the identity that is installed in the end; raises as `join` does."""
        current = self._interrupted(exchange, await self._trust.fresh())
        while True:
            await self._trust.fresh()
            if current is None:
                current = await self._first(exchange)
            if current.answer is None:
                current = await self._asker.ask(exchange, current)
            response = None if current is None else self._answer_of(current, exchange)
            if current is None or response is None:
                current = None
                continue
            self._clock.learn(parse_rfc3339(response.issued_at))
            if response.joined is not None:
                return await self._install(exchange, response.joined)
            current = await self._follow(exchange, current, response)

    def _interrupted(self, exchange: Exchange, trust: Trust) -> Round | None:
        """Return the round to go on with, if there is one that is still worth it."""
        current = exchange.round()
        if current is None or self._options.anew:
            return None
        if (current.attestor, current.role) != (self._prover.id, self._options.role):
            return None
        if current.answer is not None:
            response = self._answer_of(current, exchange)
            # A challenge may have run out while nobody was here, and to ask for another is free.
            is_challenge = response and response.deferred and response.deferred.type == "challenge"
            return None if is_challenge else current
        if current.challenge_not_after is not None and self._clock.is_behind:
            return None
        if not is_worth_sending(current, trust, self._clock):
            return None
        self._reporter.tell("resuming", exchange)
        return current

    async def _first(self, exchange: Exchange) -> Round:
        """Return a first round, on the disk; nothing is sent while there is no evidence."""
        backoff = Backoff(self._pace)
        while True:
            try:
                payload = await self._prover.evidence(exchange.csr_sha256, self._options.role)
            except NoEvidence as error:
                await self._pause("no-evidence", exchange, backoff, why=str(error))
            else:
                return self._written(exchange, payload, None)

    def _written(self, exchange: Exchange, payload: bytes, challenge: Deferred | None) -> Round:
        """Return a new round with this payload, on the disk."""
        made = make_round(
            exchange,
            attestor=self._prover.id,
            role=self._options.role,
            payload=payload,
            claims=self._options.claims(),
            key=choose_key(self._trust.current.key_set, self._clock),
            challenge=challenge,
            has_reply_key=self._transport.answers_are_shared,
        )
        with self._keystore.writing():
            exchange.save(made)
        return made

    async def _follow(
        self, exchange: Exchange, current: Round, response: JoinResponse
    ) -> Round | None:
        """Do what an answer other than `joined` asks; return the next round, or None for a fresh one."""
        if response.failed is not None:
            await self._after_failure(exchange, response.failed.code)
            return None
        if response.deferred is None:
            self._keystore.drop_exchange()
            _log.warning("join refused", csr_sha256=exchange.csr_sha256.hex())
            raise JoinRefused
        if response.deferred.type == "approval":
            await self._await_approval(exchange, current, response.deferred)
            return None
        return await self._answer_challenge(exchange, response.deferred)

    async def _after_failure(self, exchange: Exchange, code: Failure) -> None:
        if code == "UNAVAILABLE":
            await self._pause("unavailable", exchange, self._trouble)
        else:
            self._keystore.drop_exchange()
            raise RequestNotUsable(_NOT_USABLE[code])

    async def _await_approval(self, exchange: Exchange, current: Round, deferred: Deferred) -> None:
        """Wait as told. How much of it is over survives a restart, and a wrong clock only shortens it."""
        self._trouble.reset()
        self._challenges = 0
        whole_s = float(max(1, deferred.retry_after_seconds or 1))
        now_ms = int(self._clock.now().timestamp() * 1000)
        if current.retry_at_ms is None:
            wait_s = self._pace.spread(whole_s)
            waiting = current.model_copy(update={"retry_at_ms": now_ms + int(wait_s * 1000)})
            with self._keystore.writing():
                exchange.save(waiting)
        else:
            wait_s = min(max(0.0, (current.retry_at_ms - now_ms) / 1000), whole_s)
        self._reporter.tell("approval", exchange, wait_s=wait_s)
        await self._pace.sleep(wait_s)

    async def _answer_challenge(self, exchange: Exchange, deferred: Deferred) -> Round | None:
        self._challenges += 1
        if self._challenges > _MAX_CHALLENGES:
            self._challenges = 0
            await self._pause("no-evidence", exchange, self._trouble, why="too many challenges")
            return None
        challenge = unb64(deferred.challenge or "")
        try:
            payload = await self._prover.answer(challenge, exchange.csr_sha256, self._options.role)
        except NoEvidence as error:
            await self._pause("no-evidence", exchange, self._trouble, why=str(error))
            return None
        return self._written(exchange, payload, deferred)

    async def _install(self, exchange: Exchange, joined: Joined) -> Identity:
        """Make the certificate current, and only then forget the exchange, and a renewal of what was before."""
        identity = await install_joined(self._keystore, self._trust, exchange, joined)
        self._keystore.drop_renewal()
        self._keystore.drop_exchange()
        return identity

    def _answer_of(self, current: Round, exchange: Exchange) -> JoinResponse | None:
        """Return the answer that stands in the round, if it still is one."""
        token = (current.answer or "").encode()
        return read_answer(
            token,
            trust=self._trust.current,
            exchange=exchange,
            sent=current,
            now=self._clock.now(),
        )

    async def _pause(
        self,
        step: Literal["no-evidence", "unavailable"],
        exchange: Exchange,
        backoff: Backoff,
        *,
        why: str = "",
    ) -> None:
        wait_s = backoff.next_s()
        self._reporter.tell(step, exchange, why=why, wait_s=wait_s)
        await self._pace.sleep(wait_s)
