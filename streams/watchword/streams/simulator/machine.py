"""One machine of a simulation: real keys, real seals, and nothing believed but what the pinned key signed."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from uuid_utils.compat import uuid7

from watchword.handlers.crypto.renewals import RenewalEvidence, sign, signed_text
from watchword.handlers.crypto.responses import read_response
from watchword.handlers.crypto.sealing import UNSEALED, seal_evidence
from watchword.handlers.errors import SealBroken, SignatureBroken
from watchword.handlers.prover import Prover
from watchword.schemas.canonical import b64, unb64
from watchword.schemas.errors import SchemaError
from watchword.schemas.ids import Role
from watchword.schemas.keyset import EncryptionKey, KeySet
from watchword.schemas.requests import RENEWAL_ATTESTOR, Claims, JoinRequest, Kind
from watchword.schemas.responses import Joined, JoinResponse
from watchword.streams.simulator.carriers import Carrier

_MOST_ROUNDS = 64


class NoAnswer(Exception):
    """Nothing that may be believed came in time."""


@dataclass(frozen=True, slots=True)
class Service:
    """What a machine knows of the service, and how it reaches it."""

    carrier: Carrier
    key_set: KeySet
    seal_to: EncryptionKey
    patience_s: float

    @property
    def signing_public(self) -> bytes:
        """What the pin is of: 32 raw bytes of Ed25519."""
        return unb64(self.key_set.signing.public)


class SimulatedMachine:
    """A machine, its key and, once it has joined, what it was given."""

    def __init__(self, service: Service, role: Role) -> None:
        """Make a key and a CSR."""
        self._service = service
        self._role: Role = role
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.csr = _csr(self.key)
        self.joined: Joined | None = None
        self.waits = 0
        """How often it was told to wait for an operator."""

    @property
    def csr_sha256(self) -> bytes:
        """What evidence is bound to."""
        return sha256(self.csr).digest()

    async def join(
        self,
        prover: Prover,
        *,
        duplicate: bool = False,
        bound_to: bytes | None = None,
        vanishes: bool = False,
        sent: Callable[[], None] = lambda: None,
    ) -> JoinResponse | None:
        """Ask until there is an outcome; None if the machine does not wait for one.

        `bound_to` is the CSR that the evidence is sealed for, where it is not the machine's own; `sent`
        hears that the first request is in the log.

        Raises:
            NoAnswer: none came in time.
        """
        payload, state = await prover.evidence(self.csr_sha256, self._role), None
        for _ in range(_MOST_ROUNDS):
            request = self._request(payload, prover.id, "join", state=state, bound_to=bound_to)
            await self._service.carrier.send(request)
            sent()
            if duplicate:
                await self._service.carrier.send(request)
            if vanishes:
                return None
            response = await self._answer(request)
            deferred = response.deferred
            if deferred is None:
                if response.joined is not None:
                    self._take(response.joined, self.key)
                return response
            if deferred.type == "challenge":
                state = deferred.state
                challenge = unb64(deferred.challenge or "")
                payload = await prover.answer(challenge, self.csr_sha256, self._role)
            else:
                self.waits += 1
                await asyncio.sleep(deferred.retry_after_seconds or 1)
                payload, state = await prover.evidence(self.csr_sha256, self._role), None
        message = f"no end after {_MOST_ROUNDS} rounds"
        raise NoAnswer(message)

    async def renew(self) -> JoinResponse:
        """Ask for a certificate for a new key, and take it.

        Raises:
            NoAnswer: none came in time.
        """
        leaf = x509.load_der_x509_certificate(unb64(self._given.chain[0]))
        old, key = self.key, ec.generate_private_key(ec.SECP256R1())
        self.csr, request_id = _csr(key), str(uuid7())
        named = sha256(leaf.tbs_certificate_bytes).digest()
        spki = old.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        text = signed_text(named, self.csr_sha256, request_id)
        evidence = RenewalEvidence(named, spki, sign(old, text)).encode()
        request = self._request(evidence, RENEWAL_ATTESTOR, "renew", request_id=request_id)
        await self._service.carrier.send(request)
        response = await self._answer(request)
        if response.joined is not None:
            self._take(response.joined, key)
        return response

    @property
    def _given(self) -> Joined:
        if self.joined is None:
            message = "the machine has not joined"
            raise RuntimeError(message)
        return self.joined

    def _take(self, joined: Joined, key: ec.EllipticCurvePrivateKey) -> None:
        """Take a certificate, if it is of this key; else what came is as good as no answer."""
        leaf = x509.load_der_x509_certificate(unb64(joined.chain[0]))
        if leaf.public_key() != key.public_key():
            message = "the certificate is of another key"
            raise NoAnswer(message)
        self.joined, self.key = joined, key

    def _request(
        self,
        payload: bytes,
        attestor: str,
        kind: Kind,
        *,
        state: str | None = None,
        request_id: str | None = None,
        bound_to: bytes | None = None,
    ) -> bytes:
        unsealed = JoinRequest(
            version=1,
            kind=kind,
            request_id=request_id or str(uuid7()),
            attestor=attestor,
            role=self._role,
            csr=b64(self.csr),
            encryption_key_id=self._service.seal_to.kid,
            sealed=UNSEALED,
            state=state,
            reply_key=None,
        )
        public = unb64(self._service.seal_to.public)
        name = self.csr_sha256.hex()
        claims = Claims(serial=name[:10].upper(), hostname=f"sim-{name[:8]}.example")
        return seal_evidence(unsealed, public, payload, claims, csr_sha256=bound_to).write()

    async def _answer(self, request: bytes) -> JoinResponse:
        digest = sha256(request).hexdigest()
        until = time.monotonic() + self._service.patience_s
        while (left_s := until - time.monotonic()) > 0:
            token = await self._service.carrier.answer(request, left_s)
            if token is None:
                break
            try:
                response = read_response(token, self._service.signing_public, None, None)
            except (SignatureBroken, SealBroken, SchemaError):
                continue
            if response.request_sha256 == digest:
                return response
        message = f"no answer in {self._service.patience_s:.0f} s"
        raise NoAnswer(message)


def _csr(key: ec.EllipticCurvePrivateKey) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)
