"""`agent renew`: a new certificate for a new key now, whatever is left of the old one's life."""

from pathlib import Path

from watchword.streams.agent.backoff import Pace
from watchword.streams.agent.errors import JoinRefused, StateUnusable
from watchword.streams.agent.exchange import KeyKind
from watchword.streams.agent.identity import Identity
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.progress import Reporter
from watchword.streams.agent.renewer import Renewer
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import TrustKeeper


async def renew(
    state: Path, transport: Transport, *, key_kind: KeyKind, pace: Pace | None = None
) -> Identity:
    """Renew this machine's certificate, or go on with a renewal that was interrupted; return what is new.

    Raises:
        StateUnusable: the machine is no node, or its files cannot be used.
        StateBusy: another agent works in the state directory: `agent run` renews by itself.
        JoinRefused: the service said no.
        AnswerNotUsable: the service sent a certificate that is not for this node.
    """
    pace = pace or Pace()
    keystore = Keystore(state)
    with keystore.locked():
        if keystore.identity() is None:
            message = f"{state}: this machine is no node yet: run `watchword agent join`"
            raise StateUnusable(message)
        renewer = Renewer(
            keystore,
            transport,
            TrustKeeper(keystore, transport, pace=pace),
            key_kind=key_kind,
            reporter=Reporter(),
            pace=pace,
        )
        found = await renewer.tend(now=True)
    if found is None:
        message = "Renewal refused"
        raise JoinRefused(message)
    return found
