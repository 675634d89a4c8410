"""What operators say of `x509pop`: which CAs, and where their certificates lead."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from watchword.handlers.crypto.chains import UNREADABLE
from watchword.schemas.ids import Role, TenantId

_SUBJECT: Mapping[str, ObjectIdentifier] = {
    "commonName": NameOID.COMMON_NAME,
    "organization": NameOID.ORGANIZATION_NAME,
    "organizationalUnit": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "serialNumber": NameOID.SERIAL_NUMBER,
}
_NAMES: Mapping[str, type[x509.DNSName | x509.UniformResourceIdentifier | x509.RFC822Name]] = {
    "dns": x509.DNSName,
    "uri": x509.UniformResourceIdentifier,
    "email": x509.RFC822Name,
}
_NO_VALUES: tuple[type[Exception], ...] = (*UNREADABLE, x509.ExtensionNotFound, KeyError)

MATCHABLE = frozenset((*_SUBJECT, *_NAMES))
"""The fields that a rule may name: of the subject, and of the subject alternative name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Certificates that chain to one of `authorities` and match every pattern lead here.

    `match` is field → shell pattern (`*` and `?`), case sensitive; a field with several values matches if
    one does. No pattern at all would take every certificate of the CA, and has to be said: `{"commonName": "*"}`.
    """

    authorities: tuple[x509.Certificate, ...]
    match: Mapping[str, str]
    tenant: TenantId
    pool: str
    site: str | None = None
    roles: frozenset[Role] = frozenset(("node",))
    allowed_kinds: tuple[str, ...] | None = ()
    reattest: bool = False
    """Whether the same certificate may come with another machine key, and then re-keys its node."""

    def takes(self, leaf: x509.Certificate, role: Role) -> bool:
        """Tell whether a leaf of this CA is meant. An empty match takes none: fails closed."""
        if role not in self.roles or not self.match:
            return False
        return all(
            any(fnmatch.fnmatchcase(value, pattern) for value in values_of(leaf, name))
            for name, pattern in self.match.items()
        )


@dataclass(frozen=True, slots=True)
class Config:
    """All rules, in the order in which they are tried, and the grace of our own certificates."""

    trust_domain: str
    rules: tuple[Rule, ...] = field(default=())
    own_grace: timedelta = timedelta(0)
    """How long after its end a certificate of ours still re-keys its node; 0 never."""


def values_of(leaf: x509.Certificate, name: str) -> Sequence[str]:
    """Return the values of a matchable field; what cannot be parsed has none."""
    try:
        if name in _SUBJECT:
            found = leaf.subject.get_attributes_for_oid(_SUBJECT[name])
            return [str(attribute.value) for attribute in found]
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(_NAMES[name])
    except _NO_VALUES:
        return []
