"""Loopback ports that nobody listens on.

Asking the kernel for port 0 hands out a port of the ephemeral range, which any outgoing connection
on the machine may take before the server binds it. So ports are drawn at random from below that
range, where only servers live, and a port is handed out once per process. What is left is the
moment between the check and the server's own bind; callers meet it by trying again.
"""

import secrets
import socket

LOOPBACK = "127.0.0.1"

# Linux's ephemeral ports begin at 32768, those of macOS at 49152.
_FIRST, _LAST = 20_000, 32_767
_TRIES = 200

_handed_out: set[int] = set()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago.

    Raises:
        OSError: none was found.
    """
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(_LAST - _FIRST + 1)
        if port not in _handed_out and is_free(port):
            _handed_out.add(port)
            return port
    message = f"no free port among {_FIRST} to {_LAST}"
    raise OSError(message)


def free_ports(count: int) -> list[int]:
    """Return `count` different free ports."""
    return [free_port() for _ in range(count)]


def is_free(port: int) -> bool:
    """Tell whether a server could bind the port on 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a predecessor that linger in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
