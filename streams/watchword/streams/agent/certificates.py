"""Is the certificate in an answer this machine's, and whose word does it rest on?

The answer is signed by the pinned key, so this is no question of forgery. It keeps a machine from
installing what cannot work: a certificate for another key, with other names than the answer's, or
from an authority that its peers do not know.
"""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from watchword.handlers.crypto.chains import UNREADABLE
from watchword.handlers.crypto.profile import TENANT, node_uri
from watchword.schemas.canonical import unb64
from watchword.schemas.errors import SchemaError
from watchword.schemas.responses import Joined
from watchword.streams.agent.errors import AnswerNotUsable

_NO_CERTIFICATE: tuple[type[Exception], ...] = (SchemaError, *UNREADABLE)
_UNSIGNED: tuple[type[Exception], ...] = (InvalidSignature, *UNREADABLE)
_NO_EXTENSION: tuple[type[Exception], ...] = (x509.ExtensionNotFound, *UNREADABLE)

_MAX_CHAIN = 8


def check_joined(
    joined: Joined, *, spki_der: bytes, trust_domain: str, authorities: Sequence[x509.Certificate]
) -> list[x509.Certificate]:
    """Return the chain of an answer, leaf first, if this machine can use it.

    `spki_der` is this machine's key, `authorities` the CA certificates of the trust bundle. Dates
    are not compared with the clock, which may be wrong.

    Raises:
        AnswerNotUsable: says why.
    """
    # 1. One to eight certificates, DER.
    # 2. The leaf certifies our key.
    # 3. Its names are critical, and the only SPIFFE ID among them is the one that the answer
    #    tells: trust domain, tenant and node (X509-SVID, 2).
    # 4. It is a leaf for client authentication (RFC 5280, 4.2.1.9 and 4.2.1.12), and its life is
    #    not empty.
    # 5. Each certificate is issued by the next, up to an authority of the trust bundle.

    # Step 1
    chain = _load(joined.chain)
    leaf = chain[0]

    # Step 2
    if _spki(leaf) != spki_der:
        message = "the certificate is for another key"
        raise AnswerNotUsable(message)

    # Step 3
    _check_names(leaf, joined, trust_domain)

    # Step 4
    _check_use(leaf)

    # Step 5
    _check_path(chain, authorities)
    return chain


def load_authorities(authorities: Sequence[str]) -> list[x509.Certificate]:
    """Return the certificates of a trust bundle that can be read; one bad one spoils no other."""
    found: list[x509.Certificate] = []
    for text in authorities:
        try:
            found.append(x509.load_der_x509_certificate(unb64(text)))
        except _NO_CERTIFICATE:
            continue
    return found


def issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Tell whether the issuer's key signed the certificate, under the issuer's name."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except _UNSIGNED:
        return False
    return True


def _load(chain: Sequence[str]) -> list[x509.Certificate]:
    if not 1 <= len(chain) <= _MAX_CHAIN:
        message = f"a chain has 1 to {_MAX_CHAIN} certificates, not {len(chain)}"
        raise AnswerNotUsable(message)
    try:
        return [x509.load_der_x509_certificate(unb64(text)) for text in chain]
    except _NO_CERTIFICATE:
        message = "a certificate of the chain cannot be read"
        raise AnswerNotUsable(message) from None


def _spki(leaf: x509.Certificate) -> bytes | None:
    """Return the key that a certificate is for, None for one that cannot be read."""
    try:
        return leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except UNREADABLE:
        return None


def _check_names(leaf: x509.Certificate, joined: Joined, trust_domain: str) -> None:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    except _NO_EXTENSION:
        message = "the certificate has no names"
        raise AnswerNotUsable(message) from None
    if not TENANT.fullmatch(joined.tenant):
        message = "the answer's tenant is no slug"
        raise AnswerNotUsable(message)
    expected = node_uri(trust_domain, joined.tenant, joined.node_id).decode()
    ids = [uri for uri in uris if uri.startswith("spiffe:")]
    if not names.critical or ids != [expected]:
        message = "the certificate's names are not those that the answer tells"
        raise AnswerNotUsable(message)


def _check_use(leaf: x509.Certificate) -> None:
    try:
        constraints = leaf.extensions.get_extension_for_class(x509.BasicConstraints).value
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except _NO_EXTENSION:
        message = "the certificate does not say what it is for"
        raise AnswerNotUsable(message) from None
    if constraints.ca or ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
        message = "the certificate is not one for a node"
        raise AnswerNotUsable(message)
    if leaf.not_valid_before_utc >= leaf.not_valid_after_utc:
        message = "the certificate is never valid"
        raise AnswerNotUsable(message)


def _check_path(chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> None:
    for place, certificate in enumerate(chain):
        if any(issued(authority, certificate) for authority in authorities):
            return
        if place + 1 == len(chain) or not issued(chain[place + 1], certificate):
            break
    message = "the certificate does not lead to an authority of the trust bundle"
    raise AnswerNotUsable(message)
