"""The state directory: everything the agent keeps, for its owner alone.

```text
<state>/                 0700; files 0600
├── lock                 held by the agent that works here
├── pin                  sha256:… of the signing key, as given at bootstrap
├── key-set.jws          the last key set accepted; an older version is never taken again
├── trust-bundle.jws     the last trust bundle accepted
├── crl.der              the last CRL, if there is one
├── crls/<ca>.der        the last CRL of each CA, while there is more than one
├── exchange/            while a join is under way (`exchange`)
├── renewal/             the same for a renewal
├── commands/            what the machine was told to do (`command_journal`)
├── identity/, current   once it has succeeded (`identity`)
└── reloaded             the set for which the reload hook has run
```
"""

import fcntl
import os
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from watchword.streams.agent import atomic_files, identity
from watchword.streams.agent.errors import StateBusy, StateUnusable
from watchword.streams.agent.exchange import Exchange, KeyKind, begin, begin_in_tpm, load
from watchword.streams.agent.identity import Identity

Document = Literal["pin", "key-set.jws", "trust-bundle.jws", "crl.der", "reloaded"]

_EXCHANGE = "exchange"
_RENEWAL = "renewal"
_CRLS = "crls"
_LOCK = "lock"
_MAX_BYTES = 16 * 1024 * 1024


class Keystore:
    """The state directory of one agent."""

    def __init__(self, directory: Path) -> None:
        """Name the directory; nothing is read or made yet."""
        self.directory = directory

    @contextmanager
    def locked(self) -> Generator[None]:
        """Make the directory if need be and work in it alone; what a crash left is swept away.

        Raises:
            StateBusy: another agent has it.
            StateUnusable: it cannot be made or written.
        """
        try:
            atomic_files.make_folder(self.directory)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.directory / _LOCK, flags, atomic_files.FILE_MODE)
        except OSError as error:
            raise _unusable(self.directory, error) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateBusy from None
            with self.writing():
                atomic_files.sweep(self.directory)
                identity.sweep(self.directory)
                for name in (_EXCHANGE, _RENEWAL, _CRLS):
                    if (self.directory / name).is_dir():
                        atomic_files.sweep(self.directory / name)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def writing(self) -> Generator[None]:
        """Translate what the disk says into `StateUnusable`."""
        try:
            yield
        except OSError as error:
            raise _unusable(self.directory, error) from error

    def read(self, name: Document) -> bytes | None:
        """Return a document's bytes; None if there is none. Raises `StateUnusable`."""
        try:
            with (self.directory / name).open("rb") as file:
                return file.read(_MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.directory, error) from None

    def write(self, name: Document, content: bytes) -> None:
        """Replace a document; raises `StateUnusable`, and then the old one is still there."""
        with self.writing():
            atomic_files.write_file(self.directory / name, content)

    def crl_of(self, ca: str) -> bytes | None:
        """Return the stored CRL of one CA; None if there is none. Raises `StateUnusable`."""
        try:
            return (self.directory / _CRLS / f"{ca}.der").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.directory, error) from None

    def write_crl_of(self, ca: str, content: bytes) -> None:
        """Store the CRL of one CA; raises `StateUnusable`, and then the old one is still there."""
        with self.writing():
            atomic_files.make_folder(self.directory / _CRLS)
            atomic_files.write_file(self.directory / _CRLS / f"{ca}.der", content)

    def keep_crls_of(self, cas: Collection[str]) -> None:
        """Delete the CRLs of all other CAs; raises `StateUnusable`."""
        with self.writing():
            for path in (self.directory / _CRLS).glob("*.der"):
                if path.stem not in cas:
                    atomic_files.remove(path)

    def exchange(self) -> Exchange | None:
        """Return the exchange under way; raises `StateUnusable`."""
        return load(self.directory / _EXCHANGE)

    def begin_exchange(self, kind: KeyKind) -> Exchange:
        """Make a key and its CSR; raises `StateUnusable`."""
        with self.writing():
            return begin(self.directory / _EXCHANGE, kind)

    def begin_exchange_in_tpm(self, key_pem: bytes, csr_der: bytes) -> Exchange:
        """Begin with a key in the TPM and its CSR; raises `StateUnusable`."""
        with self.writing():
            return begin_in_tpm(self.directory / _EXCHANGE, key_pem, csr_der)

    def drop_exchange(self) -> None:
        """Forget key, CSR and round together; raises `StateUnusable`."""
        with self.writing():
            atomic_files.remove(self.directory / _EXCHANGE)

    def renewal(self) -> Exchange | None:
        """Return the renewal under way; raises `StateUnusable`."""
        return load(self.directory / _RENEWAL)

    def begin_renewal(self, kind: KeyKind, serial: str) -> Exchange:
        """Make a key and its CSR for what follows the certificate of this serial; raises `StateUnusable`."""
        with self.writing():
            return begin(self.directory / _RENEWAL, kind, follows=serial)

    def begin_renewal_in_tpm(self, key_pem: bytes, csr_der: bytes, serial: str) -> Exchange:
        """Begin what follows the certificate of this serial with a key in the TPM; raises `StateUnusable`."""
        with self.writing():
            return begin_in_tpm(self.directory / _RENEWAL, key_pem, csr_der, follows=serial)

    def drop_renewal(self) -> None:
        """Forget key, CSR and round of a renewal together; raises `StateUnusable`."""
        with self.writing():
            atomic_files.remove(self.directory / _RENEWAL)

    def identity(self) -> Identity | None:
        """Return the current identity; raises `StateUnusable`."""
        return identity.load(self.directory)


def _unusable(directory: Path, error: OSError) -> StateUnusable:
    return StateUnusable(f"{directory}: {error.strerror or type(error).__name__}")
