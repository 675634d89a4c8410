"""From an answer to an identity: check the certificate, write the set, make it current."""

from cryptography import x509

from watchword.schemas.responses import Joined
from watchword.streams.agent.certificates import check_joined
from watchword.streams.agent.errors import AnswerNotUsable
from watchword.streams.agent.exchange import Exchange
from watchword.streams.agent.identity import Identity, NodeRecord, install
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.trust import Trust, TrustKeeper


async def install_joined(
    keystore: Keystore, keeper: TrustKeeper, exchange: Exchange, joined: Joined
) -> Identity:
    """Install the certificate of an answer; the caller forgets the exchange afterwards.

    Raises:
        AnswerNotUsable: it is not for this machine, or leads to no authority that is published.
        StateUnusable: the disk; the old set is still current.
    """
    try:
        chain = _checked(keeper.current, joined, exchange)
    except AnswerNotUsable:
        # A new authority may have been published since.
        await keeper.refresh()
        chain = _checked(keeper.current, joined, exchange)
    trust = keeper.current
    node = NodeRecord.of(
        joined,
        chain[0],
        trust_domain=trust.key_set.trust_domain,
        csr_sha256=exchange.csr_sha256,
    )
    with keystore.writing():
        return install(
            keystore.directory,
            node=node,
            key_pem=exchange.key_pem(),
            chain=chain,
            authorities=trust.authorities,
        )


def _checked(trust: Trust, joined: Joined, exchange: Exchange) -> list[x509.Certificate]:
    return check_joined(
        joined,
        spki_der=exchange.spki_der,
        trust_domain=trust.key_set.trust_domain,
        authorities=trust.authorities,
    )
