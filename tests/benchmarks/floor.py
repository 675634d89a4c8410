"""The floor: what no service that does these joins can do without, by `cryptography` alone.

One operation opens an HPKE seal (X25519, HKDF-SHA256, AES-128-GCM), loads a P-256 CSR and verifies
its signature, builds and signs a P-256 certificate, and signs an answer with Ed25519. No line of
ours is in it: no JSON, no database, no Kafka.

A shared machine changes its speed within seconds, so the floor is measured before, between and
after the loads, and in small slices while they run: work that competes for caches and cores makes
the same instructions slower, and does so to the floor and to the service alike.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import Encoding

_SPIFFE = "spiffe://fleet.example/tenant/acme/node/0190163d-8694-739b-aea5-966c26f8ad91"
_INFO = b"i" * 200
_PLAIN = b"p" * 200
_ANSWER = b"a" * 1500
_WARM_UP, _SLICE, _LONG = 4, 16, 400


def bare_join() -> Callable[[], object]:
    """Return one operation of the floor."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    decryption, signing = X25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    sealed = suite.encrypt(_PLAIN, decryption.public_key(), info=_INFO)
    node, ca = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    csr_der = request.sign(node, SHA256()).public_bytes(Encoding.DER)
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "CA")])
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(_SPIFFE)])
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    begins = datetime.now(UTC)
    ends = begins + timedelta(days=7)

    def once() -> None:
        suite.decrypt(sealed, decryption, info=_INFO)
        csr = x509.load_der_x509_csr(csr_der)
        if not csr.is_signature_valid:
            raise ValueError
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(issuer)
            .public_key(csr.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(names, critical=True)
            .add_extension(constraints, critical=True)
        )
        builder.sign(ca, SHA256()).public_bytes(Encoding.DER)
        signing.sign(_ANSWER)

    return once


@dataclass(slots=True)
class Floor:
    """Measures the floor again and again. All values are CPU microseconds of one operation."""

    quiet: list[float] = field(default_factory=list[float])
    """Before, between and after the loads."""
    _once: Callable[[], object] = field(default_factory=bare_join)

    def measure(self) -> float:
        """Measure for a tenth of a second while no load runs."""
        found = self._sample(_LONG)
        self.quiet.append(found)
        return found

    def slice(self) -> float:
        """Measure for three milliseconds; for use while a load runs."""
        return self._sample(_SLICE)

    def _sample(self, times: int) -> float:
        for _ in range(_WARM_UP):
            self._once()
        before = time.thread_time_ns()
        for _ in range(times):
            self._once()
        return (time.thread_time_ns() - before) / times / 1000

    @property
    def alone(self) -> float:
        """The median of what was measured without a load."""
        return statistics.median(self.quiet)
