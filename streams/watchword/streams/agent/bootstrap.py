"""`agent bootstrap`: the one moment in which the agent is told whom to believe."""

import re
from pathlib import Path

from watchword.handlers.errors import BadArgument
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.transport import Transport
from watchword.streams.agent.trust import Trust, establish_trust

_PIN = re.compile(r"sha256:[0-9a-f]{64}")


def parse_pin(text: str) -> str:
    """Return the pin in its one spelling; raises `BadArgument` for anything but `sha256:` and 64 hex digits."""
    pin = text.strip().lower()
    if not _PIN.fullmatch(pin):
        message = "a pin is sha256: and 64 hexadecimal digits, as `watchword keys pin` prints it"
        raise BadArgument(message)
    return pin


async def bootstrap(state: Path, transport: Transport, *, pin: str) -> Trust:
    """Pin the service's signing key and fetch its keys and trust bundle; doing it again is harmless.

    `pin` is the SHA-256 of the signing key's SubjectPublicKeyInfo, handed over out of band. Any
    other key is refused, whoever offers it.

    Raises:
        BadArgument: no pin.
        PinMismatch: the keys offered have another pin, or the state directory is pinned already.
        TransportUnavailable, TransportRefused: the service cannot be reached.
        StateBusy, StateUnusable: the state directory.
    """
    pin = parse_pin(pin)
    keystore = Keystore(state)
    with keystore.locked():
        return await establish_trust(pin, keystore, transport)
