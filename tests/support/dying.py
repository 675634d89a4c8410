"""An agent that dies at any call to the disk, and what it leaves there."""

import os
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from watchword.streams.agent.identity import Identity
from watchword.streams.agent.keystore import Keystore

DISK = ("fsync", "rename", "replace", "symlink", "mkdir", "open", "write", "unlink", "rmdir")
"""Every call by which the agent changes the disk."""


def dies_at(call: int, work: Callable[[], object]) -> bool:
    """Do the work in a child that ends, without tidying up, at its n-th call to the disk.

    Return whether it got that far.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _work_until(call, work)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 137), "the child failed by itself"
    return os.waitstatus_to_exitcode(status) == 137


def _work_until(call: int, work: Callable[[], object]) -> int:
    left = call

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(137)
            return real(*arguments, **options)

        return wrapper

    for name in DISK:
        setattr(os, name, counted(getattr(os, name)))
    work()
    return 0


def check_set(state: Path) -> Identity | None:
    """Return the current identity, after looking that all its files are of one set."""
    identity = Keystore(state).identity()
    if identity is not None:
        key = load_pem_private_key((state / "current" / "key.pem").read_bytes(), None)
        leaf = x509.load_pem_x509_certificate((state / "current" / "cert.pem").read_bytes())
        assert leaf.public_key() == key.public_key()
        assert f"{leaf.serial_number:032x}" == identity.node.serial
        assert x509.load_pem_x509_certificates((state / "current" / "bundle.pem").read_bytes())
    return identity
