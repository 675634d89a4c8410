"""Certificate signing requests (PKCS #10, RFC 2986): bounds, shape, key policy, possession.

Two choices are written down here:

* A CSR without the `attributes` field is `csr-malformed`. RFC 2986, 4.1 makes the field mandatory
  (an empty set takes two bytes), cryptography's parser refuses the shape, and a lenient second
  parser would be one more thing to attack.
* Names, extensions and attributes must be well-formed and few, and are otherwise ignored: nothing
  of them reaches a certificate.
"""

from dataclasses import dataclass
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

from watchword.handlers.crypto import der as asn1
from watchword.handlers.crypto.keypolicy import PublicKey, load_public_key
from watchword.handlers.errors import InvalidInput
from watchword.schemas.requests import MAX_CSR_BYTES

MAX_NAMES = 100
"""Alternative names that a CSR may carry in vain."""

_UNPARSABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What `cryptography` raises for bytes that it does not like. Only ValueError is documented."""

_ECDSA: dict[bytes, ec.ECDSA] = {
    bytes.fromhex("300a06082a8648ce3d040302"): ec.ECDSA(SHA256()),
    bytes.fromhex("300a06082a8648ce3d040303"): ec.ECDSA(SHA384()),
    bytes.fromhex("300a06082a8648ce3d040304"): ec.ECDSA(SHA512()),
}
"""RFC 5758, 3.2: parameters are absent."""

_ED25519 = bytes.fromhex("300506032b6570")
"""RFC 8410, 3."""


def _pss(digest: HashAlgorithm) -> tuple[padding.PSS, HashAlgorithm]:
    return padding.PSS(padding.MGF1(digest), digest.digest_size), digest


def _pss_algorithm(hash_oid_end: str, salt: str) -> bytes:
    """Return id-RSASSA-PSS with a hash, MGF1 of the same hash and a salt of its size (RFC 4055, 3.1)."""
    digest = f"300d060960864801650304020{hash_oid_end}0500"
    return bytes.fromhex(
        f"304106092a864886f70d01010a3034a00f{digest}a11c301a06092a864886f70d010108{digest}a2030201{salt}"
    )


_RSA: dict[bytes, tuple[padding.PKCS1v15 | padding.PSS, HashAlgorithm]] = {
    bytes.fromhex("300d06092a864886f70d01010b0500"): (padding.PKCS1v15(), SHA256()),
    bytes.fromhex("300d06092a864886f70d01010c0500"): (padding.PKCS1v15(), SHA384()),
    bytes.fromhex("300d06092a864886f70d01010d0500"): (padding.PKCS1v15(), SHA512()),
    _pss_algorithm("1", "20"): _pss(SHA256()),
    _pss_algorithm("2", "30"): _pss(SHA384()),
    _pss_algorithm("3", "40"): _pss(SHA512()),
}
"""RFC 4055, 5 and 3.1. SHA-1 and MD5 are not here, and so do not exist."""


@dataclass(frozen=True, slots=True)
class Csr:
    """A CSR whose shape and key are good. Possession is proved by `check_possession` only."""

    der: bytes
    """The whole request as it came."""
    sha256: bytes
    """SHA-256 of `der`, 32 bytes."""
    spki_der: bytes
    """The SubjectPublicKeyInfo, in its one spelling."""
    spki_sha256: bytes
    """SHA-256 of `spki_der`, 32 bytes."""
    public_key: PublicKey
    signed: bytes
    """The CertificationRequestInfo: what the signature covers."""
    algorithm: bytes
    """The signature's AlgorithmIdentifier, DER."""
    signature: bytes


def load_csr(der: bytes) -> Csr:
    """Return the CSR that these bytes are, and nothing but them.

    Raises:
        InvalidInput: `csr-malformed` if they are too many, are not the DER of one CSR of version 1,
            or hold a key in a form that is not accepted; `weak-key` if the key policy refuses.
    """
    # 1. Size, before anything is parsed.
    # 2. Shape (RFC 2986, 4), by a strict DER parser without OpenSSL: bytes left over are refused,
    #    and so are attributes and extensions that are malformed, twice there or hold many names.
    # 3. The four parts are cut out by their lengths.
    # 4. Key policy, on bytes first.
    #
    # That the sender holds the private key is not known yet: `check_possession`.

    # Step 1
    if len(der) > MAX_CSR_BYTES:
        raise InvalidInput(_MALFORMED)

    # Step 2
    try:
        request = x509.load_der_x509_csr(der)
        _ = request.attributes
        names = [
            extension.value
            for extension in request.extensions
            if isinstance(extension.value, x509.SubjectAlternativeName)
        ]
    except _UNPARSABLE:
        raise InvalidInput(_MALFORMED) from None
    if names and len(list(names[0])) > MAX_NAMES:
        raise InvalidInput(_MALFORMED)

    # Step 3
    info_at, _ = asn1.read(der, 0, asn1.SEQUENCE)
    at, info_end = asn1.read(der, info_at, asn1.SEQUENCE)
    _, subject_at = asn1.read(der, at, asn1.INTEGER)
    _, spki_at = asn1.read(der, subject_at, asn1.SEQUENCE)
    _, spki_end = asn1.read(der, spki_at, asn1.SEQUENCE)
    _, algorithm_end = asn1.read(der, info_end, asn1.SEQUENCE)
    signature_at, signature_end = asn1.read(der, algorithm_end, asn1.BIT_STRING)
    if signature_end == signature_at or der[signature_at] != 0:  # a signature is whole bytes
        raise InvalidInput(_MALFORMED)

    # Step 4
    spki_der = der[spki_at:spki_end]
    public_key = load_public_key(spki_der)

    return Csr(
        der,
        sha256(der).digest(),
        spki_der,
        sha256(spki_der).digest(),
        public_key,
        der[info_at:info_end],
        der[info_end:algorithm_end],
        der[signature_at + 1 : signature_end],
    )


def check_possession(csr: Csr) -> None:
    """Return only if the CSR is signed with its own key, under a hash that is still good.

    The algorithm must be one of the exact encodings above and fit the key: ECDSA, RSA PKCS #1 v1.5
    or PSS with SHA-256, SHA-384 or SHA-512, or Ed25519.

    Raises:
        InvalidInput: `csr-signature`.
    """
    key = csr.public_key
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(csr.signature, csr.signed, _ECDSA[csr.algorithm])
        elif isinstance(key, rsa.RSAPublicKey):
            scheme, digest = _RSA[csr.algorithm]
            key.verify(csr.signature, csr.signed, scheme, digest)
        elif csr.algorithm == _ED25519:
            key.verify(csr.signature, csr.signed)
        else:
            raise InvalidInput(_SIGNATURE)
    except (KeyError, ValueError, InvalidSignature, UnsupportedAlgorithm):
        raise InvalidInput(_SIGNATURE) from None


_MALFORMED = "csr-malformed"
_SIGNATURE = "csr-signature"
