"""Sends requests through gateways, and asks gateways for the answers."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence

from tests.faults.load.kinds import Send
from tests.faults.load.wire import Answer, Cut, Wire, poll, post

_ADDRESS = "127.0.0.1"
_REST_S = 0.3
_POLL_S = 5
_PATIENCE_S = 15.0
_IDLE = 64
"""Connections to a gateway that are kept for the next machine."""
_TAKEN, _ANSWERED = 202, 200


class HttpSender:
    """Any of some gateways; where one is away another is asked, as behind a load balancer.

    Byte by byte: a client library took half of the time that machines have, on processors that they share with what is tested.
    """

    def __init__(self, ports: Sequence[int], rng: random.Random) -> None:
        """Take the gateways' ports on this machine."""
        self._ports = list(ports)
        self._rng = rng
        self._idle: defaultdict[int, list[Wire]] = defaultdict(list[Wire])
        self.failures = 0
        """Posts that were not taken, and made again."""
        self.told: dict[bytes, bytes] = {}
        """What gateways answered, by the digest of the request."""

    async def send(self, send: Send) -> None:
        """Return when a gateway has taken the request."""
        message = post(send.value)
        while True:
            answer = await self._ask(message)
            if answer is not None and answer.status == _TAKEN:
                return
            self.failures += 1
            await asyncio.sleep(_REST_S)

    async def await_answer(self, digest: bytes, *, within_s: float) -> bool:
        """Ask gateways until one has the answer; tell whether it came in time."""
        deadline = asyncio.get_running_loop().time() + within_s
        message = poll(digest, _POLL_S)
        while asyncio.get_running_loop().time() < deadline:
            answer = await self._ask(message)
            if answer is not None and answer.status == _ANSWERED:
                self.told[digest] = answer.body
                return True
            if answer is None or answer.status != _TAKEN:
                await asyncio.sleep(_REST_S)
        return False

    async def close(self) -> None:
        """Hang up."""
        for wires in self._idle.values():
            for wire in wires:
                wire.drop()
        self._idle.clear()

    async def _ask(self, message: bytes) -> Answer | None:
        """Return what a gateway answers; None if the connection did not bring an answer."""
        port = self._rng.choice(self._ports)
        idle = self._idle[port]
        while idle and not idle[-1].is_open:
            idle.pop().drop()
        wire: Wire | None = None
        answer: Answer | None = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                wire = idle.pop() if idle else await Wire.opened(port, _ADDRESS)
                answer = await wire.ask(message)
        except (Cut, TimeoutError):
            return None
        finally:
            if wire is not None:
                if answer is None or answer.closes or len(idle) >= _IDLE:
                    wire.drop()
                else:
                    idle.append(wire)
        return answer
