"""What the machine is: key, certificate, chain and trust bundle, always of one set.

```text
<state>/
├── current -> identity/000002        the one switch; services read current/…
└── identity/
    ├── 000001/                       the set before, for whoever still has it open
    └── 000002/
        ├── key.pem                   PKCS #8
        ├── cert.pem                  the node's certificate
        ├── chain.pem                 the certificate and what is between it and the authority
        ├── bundle.pem                the authorities that peers' certificates chain to
        └── node.json                 who the machine is, and when to renew
```

A set is written under a name that nobody reads, flushed, and becomes current by the renaming of one
link: a reader finds the old set or the new one, and a crash leaves one of the two.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import Field

from watchword.handlers.crypto.documents import read_document
from watchword.schemas.canonical import canonical
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import Role
from watchword.schemas.requests import Wire
from watchword.schemas.responses import Instant, Joined, Sha256Hex
from watchword.schemas.times import rfc3339
from watchword.streams.agent import atomic_files
from watchword.streams.agent.errors import StateUnusable

CURRENT = "current"

_SETS = "identity"
_NODE = "node.json"
_DIGITS = 6
_KEPT = 2


class NodeRecord(Wire):
    """Who the machine is: the content of `node.json`."""

    schema_version: Literal[1] = 1
    node_id: str
    tenant: str
    pool: str
    site: str | None
    role: Role
    trust_domain: str
    allowed_kinds: Annotated[tuple[str, ...], Field(strict=False)] | None
    serial: str
    """The certificate's serial number, 32 hexadecimal digits."""
    not_before: Instant
    not_after: Instant
    renew_after: Instant
    csr_sha256: Sha256Hex

    @classmethod
    def of(
        cls, joined: Joined, leaf: x509.Certificate, *, trust_domain: str, csr_sha256: bytes
    ) -> Self:
        """Return the record of an answer and its certificate."""
        return cls(
            node_id=joined.node_id,
            tenant=joined.tenant,
            pool=joined.pool,
            site=joined.site,
            role=joined.role,
            trust_domain=trust_domain,
            allowed_kinds=joined.allowed_kinds,
            serial=f"{leaf.serial_number:032x}",
            not_before=rfc3339(leaf.not_valid_before_utc),
            not_after=rfc3339(leaf.not_valid_after_utc),
            renew_after=joined.renew_after,
            csr_sha256=csr_sha256.hex(),
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """The current set."""

    folder: Path
    """The set's own folder, which never changes; `current` points to it until a newer one is there."""
    node: NodeRecord

    @property
    def certificate(self) -> Path:
        """The certificate's file, PEM."""
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        """The private key's file, PEM."""
        return self.folder / "key.pem"


def install(
    state: Path,
    *,
    node: NodeRecord,
    key_pem: bytes,
    chain: Sequence[x509.Certificate],
    authorities: Sequence[x509.Certificate],
) -> Identity:
    """Write a set and make it current; raises `OSError`, and then the old one still is."""
    files = {
        "key.pem": key_pem,
        "cert.pem": _pem(chain[:1]),
        "chain.pem": _pem(chain),
        "bundle.pem": _pem(authorities),
        _NODE: canonical(node.model_dump(by_alias=True, mode="json")),
    }
    return Identity(_switch(state, files), node)


def with_authorities(
    state: Path, identity: Identity, authorities: Sequence[x509.Certificate]
) -> Identity | None:
    """Make a copy of the set with other authorities current; None if they are the same.

    Raises:
        OSError: the old set is still current.
    """
    bundle = _pem(authorities)
    files = {path.name: path.read_bytes() for path in sorted(identity.folder.iterdir())}
    if files["bundle.pem"] == bundle:
        return None
    return Identity(_switch(state, files | {"bundle.pem": bundle}), identity.node)


def load(state: Path) -> Identity | None:
    """Return the current set; None before the first join.

    Raises:
        StateUnusable: there is one, and it cannot be read.
    """
    link = state / CURRENT
    if not link.is_symlink():
        return None
    try:
        folder = state / link.readlink()
        return Identity(folder, read_document(NodeRecord, (folder / _NODE).read_bytes()))
    except (OSError, SchemaError) as error:
        message = f"{link} cannot be read ({type(error).__name__})"
        raise StateUnusable(message) from None


def sweep(state: Path) -> None:
    """Delete sets that a crash left without becoming current, and those before the last two."""
    sets = state / _SETS
    if not sets.is_dir():
        return
    atomic_files.sweep(sets)
    link = state / CURRENT
    current = link.readlink().name if link.is_symlink() else ""
    older = sorted(path.name for path in sets.iterdir() if path.name < current)
    kept = {current, *older[-(_KEPT - 1) :]}
    for path in sets.iterdir():
        if path.name not in kept:
            with contextlib.suppress(OSError):
                atomic_files.remove(path)


def _switch(state: Path, files: dict[str, bytes]) -> Path:
    sets = state / _SETS
    atomic_files.make_folder(sets)
    sweep(state)
    last = max((path.name for path in sets.iterdir()), default="0")
    name = f"{int(last) + 1:0{_DIGITS}d}"
    atomic_files.write_folder(sets / name, files)
    atomic_files.point(state / CURRENT, f"{_SETS}/{name}")
    sweep(state)
    return sets / name


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
