"""Asking the service for this node's commands, and telling it what became of others.

Nothing of a request is on the disk: what is handed out is handed out again until its end is reported, so a
request and an answer may be lost. The answer always comes sealed.
"""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from watchword.handlers.crypto.commands import FetchEvidence, read_command, signed_text
from watchword.handlers.errors import SignatureBroken
from watchword.schemas.commands import Command, Reports
from watchword.schemas.errors import SchemaError
from watchword.schemas.requests import COMMAND_ATTESTOR, Claims
from watchword.schemas.responses import Commands, JoinResponse
from watchword.schemas.times import parse_rfc3339
from watchword.streams.agent.answers import read_answer
from watchword.streams.agent.asking import Asker
from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.current_key import current_key, reached, signature
from watchword.streams.agent.exchange import Exchange, ExchangeKey, Round, make_csr
from watchword.streams.agent.identity import Identity
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.progress import Reporter
from watchword.streams.agent.rounds import choose_key, make_round, new_request_id
from watchword.streams.agent.tpm.node_key import TpmKey
from watchword.streams.agent.tpm.renewing import KeysInTpm
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import TrustKeeper

_log = structlog.get_logger(__name__)


class _Passing(Exchange):
    """An exchange that may be lost."""

    def round(self) -> Round | None:
        return None

    def save(self, current: Round) -> None:
        del current

    def drop_round(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an answer has for this node. Nothing was handed out if it is `refused`, or `unavailable`."""

    outcome: str
    commands: tuple[Command, ...] = ()
    more: bool = False


class Fetcher:
    """Fetches commands with the current key and certificate."""

    def __init__(
        self,
        keystore: Keystore,
        transport: Transport,
        trust: TrustKeeper,
        *,
        pace: Pace,
        tpm: KeysInTpm | None = None,
    ) -> None:
        """Take the parts; `tpm` is for a node whose key is in it."""
        self._tpm = tpm
        self._csr: tuple[bytes, bytes] | None = None
        self._folder: Path = keystore.directory
        self._trust = trust
        self._clock = transport.clock
        reporter = Reporter(is_quiet=True)
        self._asker = Asker(keystore, transport, trust, reporter=reporter, pace=pace)

    async def fetch(self, identity: Identity, reports: Reports) -> Fetched:
        """Ask until there is an answer.

        Raises:
            StateUnusable: the key cannot be read, or is none that this agent can sign with.
            NoEvidence: the TPM that has the key is away.
            TransportRefused: requests are not taken.
        """
        await self._trust.fresh()
        key, leaf = current_key(identity)
        exchange = _Passing(self._folder, key, await self._csr_of(key))
        tbs_sha256 = sha256(leaf.tbs_certificate_bytes).digest()
        while True:
            made = await self._round(exchange, identity, key, tbs_sha256, reports)
            answered = await self._asker.ask(exchange, made)
            if answered is None:
                continue
            token = (answered.answer or "").encode()
            response = read_answer(
                token,
                trust=self._trust.current,
                exchange=exchange,
                sent=answered,
                now=self._clock.now(),
            )
            if response is not None:
                return self._read(response, identity)

    async def _csr_of(self, key: ExchangeKey) -> bytes:
        """Return a CSR; a TPM, which takes its time, is asked once for each key."""
        if not isinstance(key, TpmKey):
            return make_csr(key)
        if self._csr is None or self._csr[0] != key.pem:
            self._csr = key.pem, await reached(self._tpm).csr(key.pem)
        return self._csr[1]

    async def _round(
        self,
        exchange: Exchange,
        identity: Identity,
        key: ExchangeKey,
        tbs_sha256: bytes,
        reports: Reports,
    ) -> Round:
        request_id = new_request_id()
        text = signed_text(tbs_sha256, exchange.csr_sha256, request_id, reports)
        spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        signed = await signature(key, text, self._tpm)
        return make_round(
            exchange,
            attestor=COMMAND_ATTESTOR,
            role=identity.node.role,
            payload=FetchEvidence(tbs_sha256, spki, reports, signed).encode(),
            claims=Claims(),
            key=choose_key(self._trust.current.key_set, self._clock),
            has_reply_key=True,
            kind="commands",
            request_id=request_id,
        )

    def _read(self, response: JoinResponse, identity: Identity) -> Fetched:
        self._clock.learn(parse_rfc3339(response.issued_at))
        if response.commands is None:
            failed = response.failed
            return Fetched(response.outcome if failed is None else failed.code.lower())
        return Fetched("commands", self._meant(response.commands, identity), response.commands.more)

    def _meant(self, told: Commands, identity: Identity) -> tuple[Command, ...]:
        """Return the commands that are signed, and for this node under this certificate."""
        found: list[Command] = []
        trust = self._trust.current
        for item in told.items:
            try:
                token = item.encode()
                command = read_command(token, trust.key_for(token, self._clock.now()))
            except (SignatureBroken, SchemaError) as error:
                _log.warning("command ignored", why=type(error).__name__)
                continue
            node = identity.node
            if (command.node_id, command.certificate_serial) != (node.node_id, node.serial):
                _log.warning("command ignored", why="another node or certificate")
                continue
            found.append(command)
        return tuple(found)


def is_over(command: Command, now: datetime) -> bool:
    """Tell whether a command has expired."""
    return parse_rfc3339(command.not_after) <= now
