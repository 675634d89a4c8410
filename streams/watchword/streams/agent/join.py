"""`agent join`: make this machine a node, or go on with a join that was interrupted."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog

from watchword.handlers.prover import NoEvidence, Prover
from watchword.streams.agent.backoff import Backoff, Pace
from watchword.streams.agent.errors import GaveUp
from watchword.streams.agent.exchange import Exchange
from watchword.streams.agent.identity import Identity
from watchword.streams.agent.joiner import Joiner, JoinOptions
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.progress import Listener, Reporter, say_nothing
from watchword.streams.agent.tracing import following
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import TrustKeeper

__all__ = ["JoinOptions", "JoinResult", "join", "join_locked"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The machine is a node."""

    identity: Identity
    was_joined: bool
    """Whether it was one before, and nothing has been asked."""


async def join(
    state: Path,
    transport: Transport,
    prover: Prover,
    options: JoinOptions | None = None,
    *,
    report: Listener = say_nothing,
    pace: Pace | None = None,
) -> JoinResult:
    """Join, or go on with a join that was interrupted; return what `state` then holds.

    Raises:
        JoinRefused: the service said no.
        RequestNotUsable: the service cannot use what this agent sends.
        AnswerNotUsable: the service sent a certificate that is not for this machine.
        GaveUp: `options.give_up_after_s` have passed; the next call goes on.
        NotBootstrapped, StateBusy, StateUnusable: the state directory.
        TransportRefused: what is at the service's address takes no requests.
        BadArgument: the prover's source holds what is no evidence.
    """
    keystore = Keystore(state)
    with keystore.locked():
        return await join_locked(
            keystore,
            transport,
            prover,
            options or JoinOptions(),
            reporter=Reporter(report),
            pace=pace or Pace(),
        )


async def join_locked(
    keystore: Keystore,
    transport: Transport,
    prover: Prover,
    options: JoinOptions,
    *,
    reporter: Reporter,
    pace: Pace,
) -> JoinResult:
    """Do what `join` does, in a state directory that the caller has locked."""
    exchange = keystore.exchange()
    identity = keystore.identity()
    if identity and exchange and identity.node.csr_sha256 == exchange.csr_sha256.hex():
        # A crash came between installing the identity and forgetting its exchange.
        keystore.drop_exchange()
        exchange = None
    if identity and not options.again:
        return JoinResult(identity, was_joined=True)

    trust = TrustKeeper(keystore, transport, pace=pace)
    exchange = exchange or await _begun(keystore, options, pace)
    _log.info("joining", csr_sha256=exchange.csr_sha256.hex())
    joiner = Joiner(keystore, transport, trust, prover, options, reporter=reporter, pace=pace)
    limit = asyncio.timeout(options.give_up_after_s)
    try:
        with following("join", prover.id):
            async with limit:
                identity = await joiner.run(exchange)
    except TimeoutError:
        if not limit.expired():
            raise
        raise GaveUp from None
    _log.info("joined", node_id=identity.node.node_id, identity=identity.folder.name)
    return JoinResult(identity, was_joined=False)


async def _begun(keystore: Keystore, options: JoinOptions, pace: Pace) -> Exchange:
    """Begin an exchange; a TPM that is busy or away is asked again, for as long as it takes."""
    if options.key_in_tpm is None:
        return keystore.begin_exchange(options.key_kind)
    backoff = Backoff(pace)
    while True:
        try:
            key_pem, csr_der = await asyncio.to_thread(options.key_in_tpm)
        except NoEvidence as error:
            _log.warning("no key in the tpm yet", why=str(error))
            await backoff.wait()
        else:
            return keystore.begin_exchange_in_tpm(key_pem, csr_der)
