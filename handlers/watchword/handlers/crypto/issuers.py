"""Which CA has issued a certificate, and the certificates between the two: for deployments that change their CA."""

from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from watchword.handlers.crypto.camanifest import key_identifier_of
from watchword.handlers.errors import ConfigRefused

_KEY_IDENTIFIER = 0x80
"""The tag of `keyIdentifier` in an authority key identifier (RFC 5280, 4.2.1.1)."""


def chain_of(certificate: bytes, known: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return those of the known CA certificates that lead from a node's certificate up, without the root.

    All are DER. The certificate is one of ours: its issuer is told by the key identifier that every one of
    them repeats, looked for as bytes, since parsing would take as long as all else of an answer. Empty if its
    CA is not known any more.
    """
    if len(known) <= 1:
        return known
    for mark, chain in _chains(known):
        if mark in certificate:
            return chain
    return ()


@lru_cache(maxsize=16)
def _chains(known: tuple[bytes, ...]) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """Return, for each CA that has a key identifier, that identifier as it stands in what it issued, and the way up."""
    loaded = [x509.load_der_x509_certificate(der) for der in known]
    found: list[tuple[bytes, tuple[bytes, ...]]] = []
    for place, issuer in enumerate(loaded):
        try:
            identifier = key_identifier_of(issuer)
        except ConfigRefused:
            continue
        way = [place]
        while (above := _above(loaded, way)) is not None:
            way.append(above)
        mark = bytes((_KEY_IDENTIFIER, len(identifier))) + identifier
        found.append((mark, tuple(known[at] for at in way)))
    return tuple(found)


def _above(loaded: list[x509.Certificate], way: list[int]) -> int | None:
    for at, candidate in enumerate(loaded):
        if at in way:
            continue
        try:
            loaded[way[-1]].verify_directly_issued_by(candidate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return at
    return None
