"""The agent's own client of the gateway, and the gateway: they agree on what both wrote down."""

from hashlib import sha256

import pytest

from tests.support.gateway import WorkerSide, make_csr, make_request, nowhere, serving
from watchword.schemas.topics import CRL_KEY, KEY_SET_KEY, TRUST_BUNDLE_KEY
from watchword.streams.agent.errors import TransportRefused, TransportUnavailable
from watchword.streams.agent.http_transport import HttpTransport


async def test_an_agent_gets_every_answer_once_and_in_order(worker: WorkerSide) -> None:
    """It ignores what it does not believe, and must then see what else there is."""
    csr = make_csr()
    request = make_request(csr)
    digest = sha256(request).digest()
    async with serving(worker.topics.bootstrap_servers, worker.topics.prefix) as served:
        await served.ready()
        transport = HttpTransport(f"http://127.0.0.1:{served.gateway.port}")
        try:
            async with transport.conversation(sha256(csr).digest()) as conversation:
                await conversation.publish(request)
                nothing = await conversation.receive(digest, 0.0)
                forged = await worker.answer(request, "forged")
                first = await conversation.receive(digest, 25.0)
                genuine = await worker.answer(request, "genuine")
                second = await conversation.receive(digest, 25.0)
        finally:
            await transport.close()

    assert (nothing, first, second) == (None, forged, genuine)


async def test_an_agent_gets_the_published_documents(worker: WorkerSide) -> None:
    await worker.publish(KEY_SET_KEY, b"keys")
    await worker.publish(TRUST_BUNDLE_KEY, b"bundle")
    async with serving(worker.topics.bootstrap_servers, worker.topics.prefix) as served:
        await served.ready()
        transport = HttpTransport(f"http://127.0.0.1:{served.gateway.port}")
        try:
            found = (await transport.key_set(), await transport.trust_bundle())
            no_crl = await transport.crl()
            await worker.publish(CRL_KEY, b"crl")
            await worker.publish(KEY_SET_KEY, b"keys 2")
            while (crl := await transport.crl()) is None:
                pass
        finally:
            await transport.close()

    assert (found, no_crl, crl) == ((b"keys", b"bundle"), None, b"crl")


async def test_an_agent_knows_what_to_try_again_and_what_not() -> None:
    """503 passes; a request that is not acceptable stays so."""
    async with serving(nowhere()) as served:
        transport = HttpTransport(f"http://127.0.0.1:{served.gateway.port}")
        try:
            async with transport.conversation(bytes(32)) as conversation:
                with pytest.raises(TransportUnavailable) as away:
                    await conversation.publish(make_request())
                with pytest.raises(TransportRefused, match="undecodable"):
                    await conversation.publish(b"{}")
            with pytest.raises(TransportUnavailable):
                await transport.key_set()
        finally:
            await transport.close()

    assert away.value.retry_after_s == 1.0
