"""The CA key behind a Unix socket: what is ordered comes back signed, or it is plain that it does not."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.crypto import DAY, NOW, authority, order
from tests.support.signers import AUTHORITY, Running
from watchword.handlers.crypto.issuers import chain_of
from watchword.handlers.crypto.profile import BACKDATE, OrderRefused
from watchword.handlers.errors import SignerUnavailable
from watchword.streams.signer import server as server_module
from watchword.streams.signer.authorities import Authorities
from watchword.streams.signer.client import SocketSigner
from watchword.streams.signer.frames import MAX_ORDERS, Frame, FrameKind, encode
from watchword.streams.signer.server import SignerCounters, serve


async def test_orders_come_back_as_certificates_in_their_order(
    signer: SocketSigner, running: Running
) -> None:
    ids = [f"0190163d-8694-739b-aea5-{n:012x}" for n in range(64)]

    made = await signer.issue([order(node_id=node_id) for node_id in ids])

    issuer = x509.load_der_x509_certificate((await signer.chain())[0])
    for node_id, issued in zip(ids, made, strict=True):
        certificate = x509.load_der_x509_certificate(issued.der)
        certificate.verify_directly_issued_by(issuer)
        assert node_id.encode() in issued.der
        assert issued.serial == certificate.serial_number.to_bytes(16, "big")
        assert issued.not_before == certificate.not_valid_before_utc == NOW - BACKDATE
        assert issued.not_after == certificate.not_valid_after_utc
    assert running.counters == SignerCounters(connections=1, calls=2, certificates=64)


async def test_many_calls_share_one_connection_and_keep_their_answers_apart(
    signer: SocketSigner, running: Running
) -> None:
    """Two batches are in flight at once."""
    ids = [f"0190163d-8694-739b-aea5-{n:012x}" for n in range(50)]

    answers = await asyncio.gather(*(signer.issue([order(node_id=node_id)]) for node_id in ids))

    assert running.counters.connections == 1
    for node_id, (issued,) in zip(ids, answers, strict=True):
        assert node_id.encode() in issued.der


async def test_more_orders_than_a_call_takes_are_several_calls(
    signer: SocketSigner, running: Running
) -> None:
    wanted = order()

    assert len(await signer.issue([wanted] * (MAX_ORDERS + 1))) == MAX_ORDERS + 1
    assert running.counters.calls == 2
    with pytest.raises(OrderRefused) as caught:
        await signer.issue([wanted] * MAX_ORDERS + [replace(wanted, tenant="No")])
    assert caught.value.index == MAX_ORDERS


async def test_no_orders_are_no_certificates(signer: SocketSigner) -> None:
    assert await signer.issue([]) == []


async def test_the_signer_refuses_what_a_worker_must_not_order(
    signer: SocketSigner, running: Running
) -> None:
    """The profile is the signer's, and the worker may be somebody else's by now."""
    with pytest.raises(OrderRefused, match="tenant") as caught:
        await signer.issue([order(), order(tenant="../root")])

    assert caught.value.index == 1
    assert running.counters.orders_refused == 1
    assert running.counters.certificates == 0
    assert len(await signer.issue([order()])) == 1, "the connection goes on"


async def test_an_order_of_another_time_is_unavailable(signer: SocketSigner) -> None:
    """Clocks that disagree are nothing that the machine has done."""
    with pytest.raises(SignerUnavailable, match="clocks"):
        await signer.issue([order(not_before=NOW + DAY, not_after=NOW + 2 * DAY)])


async def test_a_failing_key_is_unavailable_and_says_nothing_more(
    running: Running, signer: SocketSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hardware module's error text is for our log."""

    def fail(*_: object, **__: object) -> None:
        message = "slot 7, pin 1234"
        raise RuntimeError(message)

    monkeypatch.setattr(running.by, "issue", fail)

    with pytest.raises(SignerUnavailable) as caught:
        await signer.issue([order()])
    assert "1234" not in str(caught.value)
    assert running.counters.failures == 1


async def test_a_signer_that_was_killed_and_started_again_is_found(
    signer: SocketSigner, running: Running
) -> None:
    """Under systemd it is back in a second; the batch that waits must not fail."""
    await signer.issue([order()])
    await running.stop()
    call = asyncio.create_task(signer.issue([order()]))
    await asyncio.sleep(0)

    await running.start()

    assert len(await call) == 1


async def test_without_a_signer_a_call_ends_within_its_deadline(path: Path) -> None:
    signer = SocketSigner(path, deadline_s=0.2)

    with pytest.raises(SignerUnavailable):
        await asyncio.wait_for(signer.issue([order()]), 2)
    await signer.close()


async def test_a_signer_that_hangs_is_unavailable_and_a_late_answer_is_dropped(path: Path) -> None:
    """SIGSTOP, a full disk under its log: it accepts, and says nothing."""
    release = asyncio.Event()
    frames: list[bytes] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames.append(await reader.read(100))
        await release.wait()
        writer.write(encode(Frame(0, FrameKind.UNAVAILABLE, b"late")))
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(hang, path):
        signer = SocketSigner(path, deadline_s=0.2)
        with pytest.raises(SignerUnavailable):
            await signer.chain()
        release.set()
        await signer.close()
    assert frames


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Frame(0, FrameKind.CERTIFICATES, b""), id="no count"),
        pytest.param(Frame(0, FrameKind.CERTIFICATES, bytes(8)), id="a count of another length"),
        pytest.param(Frame(0, FrameKind.CERTIFICATES, b"\0\0\0\4\0\0\0\0"), id="one too few"),
        pytest.param(Frame(0, FrameKind.AUTHORITIES, b"\0\0\0\4\0\0\0\0"), id="another kind"),
        pytest.param(Frame(0, FrameKind.REFUSED, b"\0"), id="a refusal without an index"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_no_certificate(path: Path, answer: Frame) -> None:
    """Fails closed."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(encode(answer))
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(babble, path):
        signer = SocketSigner(path, deadline_s=0.5)
        with pytest.raises(SignerUnavailable):
            await signer.issue([order()])
        await signer.close()


async def test_what_is_known_of_the_chain_outlives_a_signer_that_is_away(
    running: Running, signer: SocketSigner
) -> None:
    """An answer that is already committed can still be told."""
    before = await signer.chain()
    await running.stop()

    assert await signer.chain() == before


async def test_a_ca_that_is_exchanged_counts_for_the_next_call(path: Path) -> None:
    """A signer that has to be restarted for a new CA keeps a fleet waiting, and a stale chain fits no certificate."""
    second = authority(is_distinct=True)
    authorities = Authorities((AUTHORITY,))
    ready = asyncio.Event()
    serving = asyncio.create_task(serve(authorities, path, clock=lambda: NOW, ready=ready.set))
    await ready.wait()
    signer = SocketSigner(path)
    (before,) = await signer.issue([order()])
    assert chain_of(before.der, await signer.chain()) == AUTHORITY.chain

    authorities.exchange((second, AUTHORITY))
    (after,) = await signer.issue([order()])

    known = await signer.chain()
    assert known == (*second.chain, *AUTHORITY.chain)
    assert chain_of(after.der, known) == second.chain
    assert chain_of(before.der, known) == AUTHORITY.chain, "an answer that is told again"
    await signer.close()
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def test_a_signer_whose_key_is_out_of_reach_asks_to_come_again(path: Path) -> None:
    """A hardware module may be plugged in later; until then nobody is refused for it."""
    authorities = Authorities()
    ready = asyncio.Event()
    serving = asyncio.create_task(serve(authorities, path, clock=lambda: NOW, ready=ready.set))
    await ready.wait()
    signer = SocketSigner(path)
    for call in (signer.issue([order()]), signer.chain()):
        with pytest.raises(SignerUnavailable, match="not been opened"):
            await call
    authorities.exchange((AUTHORITY,))

    assert len(await signer.issue([order()])) == 1
    assert authorities.problem() is None
    await signer.close()
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def test_whatever_is_signed_stands_in_the_signers_own_log(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that was broken into can write what it likes into the database, and nothing here."""
    caplog.set_level("INFO", logger=server_module.__name__)
    signer = SocketSigner(running.path)
    orders = [order(), replace(order(), tenant="umbrella")]
    issued = await signer.issue(orders)
    [record] = [r for r in caplog.records if r.message == "certificates signed"]
    assert vars(record)["certificates"] == [
        f"{certificate.serial.hex()} {asked.tenant}/{asked.node_id}"
        for asked, certificate in zip(orders, issued, strict=True)
    ]
    await signer.close()
