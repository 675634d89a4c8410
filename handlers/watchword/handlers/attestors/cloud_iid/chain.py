"""The path from Azure's signer to a root of ours, of any length within the bound (RFC 5280, 6.1).

Issuers come from the folder first and from the CMS second; nothing is fetched, whatever the
certificates say of where their issuers are (authorityInfoAccess). The path is found by names, issuer by
issuer, and then verified as one line (`crypto.chains`).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

from cryptography import x509
from cryptography.x509.verification import VerificationError

from watchword.handlers.attestors.cloud_iid.reasons import Unproven
from watchword.handlers.crypto.chains import UNREADABLE, KeyBounds, acceptable_key, line_verifier

MAX_DEPTH = 6
MAX_LINES = 4
"""How many ways of cross-signed issuers are verified."""
MAX_STEPS = 64

_BOUNDS = KeyBounds(max_rsa_bits=4096)


def load(data: bytes) -> x509.Certificate:
    """Return a certificate (DER) whose key is neither weak nor costly; raises `Unproven` with `chain`."""
    try:
        certificate = x509.load_der_x509_certificate(data)
        # RFC 5280, 4.1.2.2; `cryptography` warns of others and will not load them one day.
        if certificate.serial_number <= 0 or acceptable_key(certificate, _BOUNDS) is None:
            raise Unproven("chain")
        # Parsed when first asked for: what cannot be parsed is found here and not on the way.
        _ = certificate.subject, certificate.issuer, certificate.extensions
    except UNREADABLE:
        raise Unproven("chain") from None
    return certificate


def verify_chain(
    leaf: x509.Certificate,
    issuers: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    at: datetime,
) -> list[x509.Certificate]:
    """Return the path from the leaf to a root at this time, both included.

    Raises:
        Unproven: `chain`.
    """
    for path in islice(_lines(leaf, issuers, roots), MAX_LINES):
        try:
            # Azure's signers are certificates for TLS servers, and need not say that they may sign.
            verifier = line_verifier(tuple(roots), at, len(path), must_state_usage=False)
            return verifier.verify(leaf, path).chain
        except VerificationError:
            continue
        except UNREADABLE:
            continue
    raise Unproven("chain")


def _lines(
    leaf: x509.Certificate,
    issuers: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
) -> Iterator[list[x509.Certificate]]:
    """Give the issuers that lead by their names from the leaf to a root, the leaf's issuer first.

    There is more than one such line where issuers are cross-signed. Names can lead round in circles:
    a certificate is in a line once, and all the looking together ends after `MAX_STEPS`.
    """
    trusted = {root.subject for root in roots}
    waiting: list[list[x509.Certificate]] = [[]]
    for _ in range(MAX_STEPS):
        if not waiting:
            return
        path = waiting.pop()
        at = path[-1] if path else leaf
        if at.issuer in trusted:
            yield path
        if len(path) < MAX_DEPTH:
            # The last comes first from the stack: the folder's issuers before a stranger's.
            waiting += [
                [*path, issuer]
                for issuer in reversed(issuers)
                if issuer.subject == at.issuer and issuer not in path
            ]
