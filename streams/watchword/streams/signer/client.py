"""The worker's side of the signer's socket."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from watchword.handlers.crypto.profile import CertificateOrder, IssuedCertificate, OrderRefused
from watchword.handlers.errors import SignerUnavailable
from watchword.streams.signer.connection import ConnectionLost, SignerConnection
from watchword.streams.signer.frames import (
    MAX_ORDERS,
    Frame,
    FrameBroken,
    FrameKind,
    decode_certificates,
    decode_chain,
    decode_refusal,
    encode_orders,
)

DEFAULT_DEADLINE_S = 2.0
"""A signer that is started again takes a second; a worker tries again anyway."""

_RETRY_S = 0.05


class SocketSigner:
    """A `Signer` in another process. Calls may overlap; a lost connection is made anew."""

    def __init__(self, socket_path: Path, *, deadline_s: float = DEFAULT_DEADLINE_S) -> None:
        """Connect with the first call. Each call, with all its retries, ends within the deadline."""
        self._path = socket_path
        self._deadline_s = deadline_s
        self._connection: SignerConnection | None = None
        self._connecting = asyncio.Lock()
        self._chain: tuple[bytes, ...] | None = None

    async def issue(self, orders: Sequence[CertificateOrder]) -> list[IssuedCertificate]:
        """Return one certificate for each order, in order; see `Signer.issue`.

        A call whose connection broke is sent again: a certificate that nobody received is in no
        table, so nothing is issued twice.

        Raises:
            OrderRefused: an order breaks the profile.
            SignerUnavailable: no usable answer within the deadline.
        """
        issued: list[IssuedCertificate] = []
        for at in range(0, len(orders), MAX_ORDERS):
            issued += await self._issue(orders[at : at + MAX_ORDERS], at)
        return issued

    async def chain(self) -> tuple[bytes, ...]:
        """Return DER, the issuing CA first, without the root; raises `SignerUnavailable`.

        Asked once for each connection: a signer that is away for a moment takes nothing known away.
        """
        if self._chain is not None:
            return self._chain
        frame = await self._call(FrameKind.CHAIN, b"")
        try:
            _expect(frame, FrameKind.AUTHORITIES)
            self._chain = decode_chain(frame.body)
        except FrameBroken:
            raise SignerUnavailable from None
        return self._chain

    async def close(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _issue(
        self, orders: Sequence[CertificateOrder], first: int
    ) -> list[IssuedCertificate]:
        frame = await self._call(FrameKind.ISSUE, encode_orders(orders))
        try:
            if frame.kind is FrameKind.REFUSED:
                index, problem = decode_refusal(frame.body)
                raise OrderRefused(first + index, problem)
            _expect(frame, FrameKind.CERTIFICATES)
            issued = decode_certificates(frame.body)
        except FrameBroken:
            raise SignerUnavailable from None
        if len(issued) != len(orders):
            raise SignerUnavailable
        return issued

    async def _call(self, kind: FrameKind, body: bytes) -> Frame:
        """Return the answer to one call, over as many connections as it takes within the deadline."""
        try:
            async with asyncio.timeout(self._deadline_s):
                while True:
                    try:
                        connection = await self._connected()
                        return await connection.ask(kind, body)
                    except (OSError, ConnectionLost):
                        await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            message = f"the signer did not answer within {self._deadline_s} s"
            raise SignerUnavailable(message) from None

    async def _connected(self) -> SignerConnection:
        """Return the one connection, made by whoever comes first."""
        async with self._connecting:
            if self._connection is None or self._connection.is_lost:
                await self.close()
                self._connection = await SignerConnection.open(self._path)
                self._chain = None
            return self._connection


def _expect(frame: Frame, kind: FrameKind) -> None:
    if frame.kind is FrameKind.UNAVAILABLE:
        raise SignerUnavailable(frame.body.decode("utf-8", "replace"))
    if frame.kind is not kind:
        raise FrameBroken
