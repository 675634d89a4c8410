"""Client certificates of operators: a name that stands in one, and what whoever shows it may do.

Such an operator has a row in the table of API tokens, so that they are listed, taken out and lose their
sessions in the same way. Where a token's row has the hash of its secret, theirs has a hash of the name; it
opens nothing as a token, whose secret has 32 bytes: what is hashed here has always more. The row's id is the
beginning of that hash, so that a name has one row and no more.

Whether the certificate is of a trusted CA, and its key in the hands of whoever shows it, is for TLS to say.
"""

from base64 import b32encode
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from watchword.handlers.crypto.chains import UNREADABLE
from watchword.handlers.crypto.named_secrets import ID_CHARACTERS
from watchword.handlers.errors import BadArgument, Denied
from watchword.handlers.operators.access import ROLES, Access, OperatorRole
from watchword.handlers.operators.actor import Actor, record
from watchword.handlers.operators.api_tokens import granted_access
from watchword.handlers.operators.grants import check_life
from watchword.handlers.operators.places import label
from watchword.handlers.store import access as store
from watchword.handlers.store import operators
from watchword.handlers.store.access import SecretRow
from watchword.handlers.store.connection import Database
from watchword.handlers.store.operators import Row
from watchword.schemas.ids import ROOT

KINDS: Final = ("email", "uri", "dns", "subject", "sha256")
"""Of names: three of the subject alternative name, the subject (RFC 4514), and the certificate itself."""

_PURPOSE: Final = b"watchword operator's certificate v1\0"
_MAX_NAME: Final = 100
_HEX_DIGITS: Final = 64
_DIGITS: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What a certificate says of who shows it. Names are `<kind>:<value>`."""

    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class Certified:
    """Who showed a certificate: their row, the name that it has, and what they may."""

    id: str
    name: str
    access: Access


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateOrder:
    """Which name is let in, and as what. `expires_in` None ends with the certificate alone."""

    name: str
    scope: str = ROOT
    role: OperatorRole = "viewer"
    expires_in: timedelta | None = None

    def check(self) -> str:
        """Return the name as certificates are asked for it; raises `BadArgument` for the first thing that is wrong."""
        name = canonical_name(self.name)
        label(self.scope, "tenant")
        if self.role not in ROLES:
            message = f"role: one of {', '.join(ROLES)}"
            raise BadArgument(message)
        check_life(self.expires_in, "an operator")
        return name


def canonical_name(text: str) -> str:
    """Return a name of a certificate; raises `BadArgument` for a text that is none."""
    kind, _, value = text.strip().partition(":")
    kind = kind.lower()
    if kind in {"dns", "sha256"}:
        value = value.lower()
    if kind == "sha256":
        value = value.replace(":", "")
    name = f"{kind}:{value}"
    if kind not in KINDS or not value or not name.isprintable() or len(name) > _MAX_NAME:
        message = f"a certificate's name: {', '.join(f'{one}:…' for one in KINDS)}; at most {_MAX_NAME} characters"
        raise BadArgument(message)
    if kind == "sha256" and (len(value) != _HEX_DIGITS or not _DIGITS.issuperset(value)):
        message = "sha256: the certificate's SHA-256 in 64 hexadecimal digits"
        raise BadArgument(message)
    return name


def certificate_id(name: str) -> str:
    """Return the id of the row of a canonical name."""
    return b32encode(_digest(name)).decode().lower()[:ID_CHARACTERS]


def is_certificate(token_id: str, name: str) -> bool:
    """Tell whether a row of the table is of a certificate's name; else it is of an API token."""
    return token_id == certificate_id(name)


def read_client_certificate(der: bytes) -> ClientCertificate:
    """Return what a certificate says; raises `Denied` for one that cannot be read."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = [f"sha256:{certificate.fingerprint(SHA256()).hex()}"]
        if certificate.subject.rdns:
            names.append(f"subject:{certificate.subject.rfc4514_string()}")
        names += _alternative_names(certificate)
        return ClientCertificate(
            tuple(names), certificate.not_valid_before_utc, certificate.not_valid_after_utc
        )
    except UNREADABLE:
        message = "the client certificate cannot be read"
        raise Denied(message) from None


async def admit_certificate(database: Database, actor: Actor, order: CertificateOrder) -> Row:
    """Let whoever shows a certificate of this name in.

    Raises:
        BadArgument: the order makes no sense.
        Conflict: the name is let in already.
        NotFound: there is no such tenant.
    """
    name = order.check()
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        row = SecretRow(
            id=certificate_id(name),
            secret_sha256=_digest(name),
            who=name,
            scope=order.scope,
            role=order.role,
            expires_at=None if order.expires_in is None else now + order.expires_in,
        )
        stored = await store.admit_certificate(connection, row, actor.who, now)
        await record(connection, actor, granted_access("operator-token.created", stored), now)
    return stored


async def access_by_certificate(database: Database, shown: ClientCertificate) -> Certified:
    """Return who shows a certificate, and what they may now.

    Raises:
        Denied: none of its names is let in, or several are; or its time has not come or is over.
    """
    by_id = {certificate_id(name): name for name in shown.names}
    async with database.transaction() as connection:
        now = await operators.clock(connection)
        rows = await store.certificates(connection, list(by_id))
    if not shown.not_before <= now < shown.not_after:
        message = "the client certificate is not valid now"
        raise Denied(message)
    found = [row for row in rows if row["secret_sha256"] == _digest(by_id[row["id"]])]
    if len(found) != 1:
        message = (
            "the client certificate names several operators"
            if found
            else "the client certificate names no operator here"
        )
        raise Denied(message)
    [row] = found
    name: str = row["name"]
    return Certified(row["id"], name, Access(f"certificate:{name}", row["scope"], row["role"]))


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    try:
        said = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *(f"email:{one}" for one in said.get_values_for_type(x509.RFC822Name)),
        *(f"uri:{one}" for one in said.get_values_for_type(x509.UniformResourceIdentifier)),
        *(f"dns:{one.lower()}" for one in said.get_values_for_type(x509.DNSName)),
    ]


def _digest(name: str) -> bytes:
    return sha256(_PURPOSE + name.encode()).digest()
