"""Sending one round, byte for byte the same each time, until something answers exactly it."""

from hashlib import sha256

from watchword.schemas.times import parse_rfc3339
from watchword.streams.agent.answers import read_answer
from watchword.streams.agent.backoff import Backoff, Pace
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import TransportUnavailable
from watchword.streams.agent.exchange import Exchange, Round
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.progress import Reporter, Step
from watchword.streams.agent.tracing import following
from watchword.streams.agent.transport import Conversation, Transport
from watchword.streams.agent.trust import Trust, TrustKeeper
from watchword.streams.logs import about_request

_MAX_RESEND_AFTER_S = 900.0


def is_worth_sending(current: Round, trust: Trust, clock: AgentClock) -> bool:
    """Tell whether a round that nothing answered can still be answered with more than a refusal.

    Not if the key that it is sealed to has left the key set, or the challenge that it answers has run
    out. (A clock that is ahead finds every challenge run out: then it is asked for anew.)
    """
    if current.encryption_key_id not in {key.kid for key in trust.key_set.encryption}:
        return False
    if current.challenge_not_after is None:
        return True
    return clock.now() < parse_rfc3339(current.challenge_not_after)


class Asker:
    """Asks the service one round at a time."""

    def __init__(
        self,
        keystore: Keystore,
        transport: Transport,
        trust: TrustKeeper,
        *,
        reporter: Reporter,
        pace: Pace,
    ) -> None:
        """Take the parts."""
        self._keystore = keystore
        self._transport = transport
        self._trust = trust
        self._reporter = reporter
        self._pace = pace
        self._clock = transport.clock

    async def ask(self, exchange: Exchange, current: Round) -> Round | None:
        """Send the round until something answers it; return it with its answer, on the disk.

        None if it is not worth sending any more.

        Raises:
            TransportRefused: it is not taken.
            StateUnusable: the disk.
        """
        with about_request(current.request_id), following("ask", current.attestor):
            return await self._ask(exchange, current)

    async def _ask(self, exchange: Exchange, current: Round) -> Round | None:
        trouble = Backoff(self._pace)
        step: Step = "sending"
        while step == "sending" or await self._is_worth_it(current):
            try:
                async with self._transport.conversation(exchange.csr_sha256) as conversation:
                    return await self._converse(conversation, exchange, current, step)
            except TransportUnavailable as error:
                wait_s = trouble.next_s(error.retry_after_s)
                self._reporter.tell("unreachable", exchange, why=str(error), wait_s=wait_s)
                await self._pace.sleep(wait_s)
            step = "resending"
        return None

    async def _converse(
        self, conversation: Conversation, exchange: Exchange, current: Round, step: Step
    ) -> Round | None:
        """Send and listen in turns, listening longer each time; returns as `ask` does."""
        listen_s = self._pace.resend_after_s
        while True:
            self._reporter.tell(step, exchange)
            await conversation.publish(current.request_bytes())
            token = await self._listen(conversation, exchange, current, listen_s)
            if token is not None:
                return self._answered(exchange, current, token)
            if not await self._is_worth_it(current):
                return None
            listen_s = min(listen_s * 2, _MAX_RESEND_AFTER_S)
            step = "resending"

    async def _is_worth_it(self, current: Round) -> bool:
        return is_worth_sending(current, await self._trust.fresh(), self._clock)

    async def _listen(
        self, conversation: Conversation, exchange: Exchange, current: Round, seconds: float
    ) -> bytes | None:
        """Return the first answer to exactly this round, or None after so many seconds."""
        digest = sha256(current.request_bytes()).digest()
        trust = self._trust.current
        until = self._pace.monotonic() + seconds
        trouble = Backoff(self._pace)
        while (left_s := until - self._pace.monotonic()) > 0:
            try:
                token = await conversation.receive(digest, min(left_s, self._pace.poll_s))
            except TransportUnavailable as error:
                # Asking again is all: sending again would only add to what overloads them.
                await self._pace.sleep(min(trouble.next_s(error.retry_after_s), left_s))
                continue
            if token is None:
                trouble.reset()
            elif self._is_answer(token, trust, exchange, current):
                return token
            else:
                # Whatever brings forged answers must neither make us spin nor keep us from the next one.
                await self._pace.sleep(min(self._pace.first_s, left_s))
        return None

    def _is_answer(self, token: bytes, trust: Trust, exchange: Exchange, current: Round) -> bool:
        now = self._clock.now()
        found = read_answer(token, trust=trust, exchange=exchange, sent=current, now=now)
        return found is not None

    def _answered(self, exchange: Exchange, current: Round, token: bytes) -> Round:
        answered = current.model_copy(update={"answer": token.decode()})
        with self._keystore.writing():
            exchange.save(answered)
        return answered
