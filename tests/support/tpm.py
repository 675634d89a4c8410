"""A TPM's half in software, and its maker: keys, public areas, quotes, certificates, activation.

Only for tests. Public areas are marshalled here by hand, so that no code of ours reads what it wrote itself.
"""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from cryptography import x509
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.support.joins import Bench
from tests.support.vectors import vector
from watchword.handlers.attestors.tpm.evidence import (
    Certification,
    TpmAnswer,
    TpmChallenge,
    TpmEvidence,
)

TpmKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
EK_PURPOSE = x509.ObjectIdentifier("2.23.133.8.1")
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")


def recorded_area(folder: str, key: str) -> bytes:
    """Return a recorded public area as TPM2B_PUBLIC; some recordings are without its size."""
    data = (vector(folder) / f"{key}.pub").read_bytes()
    whole = data[:2] == (len(data) - 2).to_bytes(2, "big")
    return data if whole else len(data).to_bytes(2, "big") + data


def new_key(kind: str) -> TpmKey:
    """Return a key: `rsa2048`, `rsa3072`, `p256` or `p384`."""
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, int(kind[3:]))
    return ec.generate_private_key({"p256": ec.SECP256R1(), "p384": ec.SECP384R1()}[kind])


class Maker:
    """A vendor's root CA, and one CA below it that certifies endorsement keys."""

    def __init__(self) -> None:
        """Make both."""
        self._root_key = ec.generate_private_key(ec.SECP256R1())
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.root = self._authority("root", self._root_key, None).public_bytes(Encoding.DER)
        self.issuer = self._authority("issuer", self._key, 0).public_bytes(Encoding.DER)

    def certify(
        self,
        key: TpmKey,
        *,
        self_signed: bool = False,
        days: int = 365,
        purpose: x509.ObjectIdentifier | None = EK_PURPOSE,
        critical: x509.ExtensionType | None = None,
        authority: bool = False,
    ) -> bytes:
        """Return the endorsement certificate of a key: an empty subject, and a critical directoryName."""
        named = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "id:54455354")])
        builder = _builder(x509.Name([]), _name("issuer"), key, days)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DirectoryName(named)]), critical=True
        )
        builder = builder.add_extension(
            x509.BasicConstraints(ca=authority, path_length=None), critical=True
        )
        builder = builder.add_extension(
            _usage(
                key_encipherment=isinstance(key, rsa.RSAPrivateKey),
                key_agreement=isinstance(key, ec.EllipticCurvePrivateKey),
            ),
            critical=True,
        )
        if purpose is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if critical is not None:
            builder = builder.add_extension(critical, critical=True)
        signer = key if self_signed else self._key
        return builder.sign(signer, SHA256()).public_bytes(Encoding.DER)

    def _authority(self, name: str, key: TpmKey, path_length: int | None) -> x509.Certificate:
        builder = _builder(_name(name), _name("root"), key, 3650)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=path_length), critical=True
        )
        builder = builder.add_extension(_usage(key_cert_sign=True), critical=True)
        return builder.sign(self._root_key, SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: TpmKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(**on: bool) -> x509.KeyUsage:
    off = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(**{**off, **on})


def _u16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def _2b(data: bytes) -> bytes:
    return _u16(len(data)) + data


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


RESTRICTED_SIGNING = 0x00050072
"""fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, restricted, sign."""
STORAGE = 0x000300B2
"""fixedTPM, fixedParent, sensitiveDataOrigin, adminWithPolicy, restricted, decrypt."""
SIGNING = 0x00040072
"""As an attestation key, and not restricted."""

_HASH_IDS = {"sha1": 0x0004, "sha256": 0x000B, "sha384": 0x000C, "sha512": 0x000D}
_DIGESTS = {"sha256": SHA256(), "sha384": SHA384()}
_SCHEMES = {"rsassa": 0x0014, "rsapss": 0x0016, "ecdsa": 0x0018}
_CURVES = {"secp256r1": 0x0003, "secp384r1": 0x0004, "secp224r1": 0x0002}


def area(
    key: TpmKey,
    attributes: int,
    *,
    storage: bool = False,
    scheme: str | None = None,
    name_hash: str = "sha256",
    scheme_hash: str = "sha256",
) -> bytes:
    """Return a TPM2B_PUBLIC."""
    head = _u16(0x0001 if isinstance(key, rsa.RSAPrivateKey) else 0x0023)
    head += _u16(_HASH_IDS[name_hash]) + _u32(attributes) + _2b(b"")
    head += b"\x00\x06\x00\x80\x00\x43" if storage else b"\x00\x10"
    head += b"\x00\x10" if scheme is None else _u16(_SCHEMES[scheme]) + _u16(_HASH_IDS[scheme_hash])
    if isinstance(key, rsa.RSAPrivateKey):
        modulus = key.public_key().public_numbers().n.to_bytes(key.key_size // 8, "big")
        return _2b(head + _u16(key.key_size) + _u32(0) + _2b(modulus))
    point = key.public_key().public_numbers()
    size = (key.key_size + 7) // 8
    x, y = (n.to_bytes(size, "big") for n in (point.x, point.y))
    return _2b(head + _u16(_CURVES[key.curve.name]) + b"\x00\x10" + _2b(x) + _2b(y))


def name_of(public: bytes) -> bytes:
    """Return the name of a TPM2B_PUBLIC whose name is made with SHA-256."""
    return b"\x00\x0b" + sha256(public[2:]).digest()


class SoftTpm:
    """A TPM with an endorsement key, an attestation key and PCRs; what it signs can be bent."""

    def __init__(
        self, ek: str = "p256", ak: str = "p256", scheme: str = "", bank: str = "sha256"
    ) -> None:
        """Make the keys of these kinds; PCRs hold 24 values of 0x11."""
        self.ek_key, self.ak_key = new_key(ek), new_key(ak)
        self.scheme = scheme or ("rsassa" if ak.startswith("rsa") else "ecdsa")
        self.ek = area(self.ek_key, STORAGE, storage=True)
        self.ak = area(self.ak_key, RESTRICTED_SIGNING, scheme=self.scheme)
        self.bank = bank
        self.pcrs = [b"\x11" * hashlib.new(bank).digest_size for _ in range(24)]
        self.salt: int | None = None

    def activate(
        self, id_object: bytes, encrypted_secret: bytes, name: bytes | None = None
    ) -> bytes:
        """Return the secret of a credential (Part 3, 12.5); raises `ValueError` if it is for another name."""
        seed = self._seed(encrypted_secret[2:])
        mac_size = int.from_bytes(id_object[2:4], "big")
        mac, encrypted = id_object[4 : 4 + mac_size], id_object[4 + mac_size :]
        name = name or name_of(self.ak)
        integrity = _kdfa(seed, b"INTEGRITY\0", b"", 256)
        if hmac.digest(integrity, encrypted + name, "sha256") != mac:
            message = "integrity check failed"
            raise ValueError(message)
        decryptor = Cipher(AES(_kdfa(seed, b"STORAGE\0", name, 128)), CFB(bytes(16))).decryptor()
        return decryptor.update(encrypted)[2:]

    def _seed(self, encrypted: bytes) -> bytes:
        if isinstance(self.ek_key, rsa.RSAPrivateKey):
            oaep = padding.OAEP(padding.MGF1(SHA256()), SHA256(), b"IDENTITY\0")
            return self.ek_key.decrypt(encrypted, oaep)
        size = int.from_bytes(encrypted[:2], "big")
        x, y = encrypted[2 : 2 + size], encrypted[4 + size :]
        numbers = ec.EllipticCurvePublicNumbers(
            int.from_bytes(x, "big"), int.from_bytes(y, "big"), self.ek_key.curve
        )
        z = self.ek_key.exchange(ec.ECDH(), numbers.public_key())
        own = self.ek_key.public_key().public_numbers().x.to_bytes(size, "big")
        return sha256(b"\0\0\0\x01" + z + b"IDENTITY\0" + x + own).digest()

    def quote(
        self, extra: bytes, pcrs: Sequence[int], *, kind: int = 0x8018, magic: int = 0xFF544347
    ) -> bytes:
        """Return a TPMS_ATTEST over these PCRs of the bank."""
        bits = sum(1 << n for n in pcrs).to_bytes(3, "little")
        digest = sha256(self.values(pcrs)).digest()
        selection = _u32(1) + _u16(_HASH_IDS[self.bank]) + b"\x03" + bits
        return self._attest(extra, selection + _2b(digest), kind, magic)

    def values(self, pcrs: Sequence[int]) -> bytes:
        """Return the values of PCRs, one after the other."""
        return b"".join(self.pcrs[n] for n in sorted(pcrs))

    def certify(self, extra: bytes, name: bytes) -> bytes:
        """Return a TPMS_ATTEST that an object of this name is in the TPM."""
        return self._attest(extra, _2b(name) + _2b(name), 0x8017, 0xFF544347)

    def _attest(self, extra: bytes, attested: bytes, kind: int, magic: int) -> bytes:
        head = _u32(magic) + _u16(kind) + _2b(name_of(self.ak)) + _2b(extra)
        clock = (1189).to_bytes(8, "big") + _u32(3) + _u32(0) + b"\x01"
        return head + clock + (7).to_bytes(8, "big") + attested

    def sign(self, text: bytes, digest: str = "sha256") -> bytes:
        """Return a TPMT_SIGNATURE by the attestation key."""
        head = _u16(_SCHEMES[self.scheme]) + _u16(_HASH_IDS[digest])
        if isinstance(self.ak_key, ec.EllipticCurvePrivateKey):
            der = self.ak_key.sign(text, ec.ECDSA(_DIGESTS[digest]))
            size = (self.ak_key.key_size + 7) // 8
            r, s = (n.to_bytes(size, "big") for n in decode_dss_signature(der))
            return head + _2b(r) + _2b(s)
        if self.scheme == "rsassa":
            return head + _2b(self.ak_key.sign(text, padding.PKCS1v15(), _DIGESTS[digest]))
        salt = padding.PSS.DIGEST_LENGTH if self.salt is None else self.salt
        pss = padding.PSS(padding.MGF1(_DIGESTS[digest]), salt)
        return head + _2b(self.ak_key.sign(text, pss, _DIGESTS[digest]))


def _kdfa(seed: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    text = _u32(1) + label + context + _u32(bits)
    return hmac.digest(seed, text, "sha256")[: bits // 8]


def measured(pcr: int, kind: int, digest: bytes, data: bytes) -> bytes:
    """Return a TCG_PCR_EVENT2 with a digest of SHA-256."""
    numbers = (pcr, kind, 1)
    head = b"".join(n.to_bytes(4, "little") for n in numbers)
    return head + b"\x0b\x00" + digest + len(data).to_bytes(4, "little") + data


_SPEC = b"Spec ID Event03\0" + b"\0\0\0\0\0\2\0\2" + b"\1\0\0\0" + b"\x0b\0\x20\0" + b"\0"
SPEC_ID = b"\0\0\0\0\3\0\0\0" + bytes(20) + len(_SPEC).to_bytes(4, "little") + _SPEC
"""The first event of a log with SHA-256 alone."""


class SoftProver:
    """A machine with a software TPM. The fields are what a test may bend; see `answer`."""

    id = "tpm"

    def __init__(
        self, tpm: SoftTpm, maker: Maker | None = None, node_key: TpmKey | None = None
    ) -> None:
        """Take the TPM, who certified its endorsement key, and the node's key if it is in the TPM."""
        self.tpm = tpm
        self.certificate = b"" if maker is None else maker.certify(tpm.ek_key)
        self.intermediates = () if maker is None else (maker.issuer,)
        self.node_key = node_key
        self.log = b""
        self.pcrs: Sequence[int] | None = None
        self.changes: dict[str, Any] = {}

    async def evidence(self, csr_sha256: bytes, role: str) -> bytes:
        """Return keys and certificates."""
        del csr_sha256, role
        return self.shown(None)

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: str) -> bytes:
        """Return what the TPM makes of a challenge; `changes` replace fields of it."""
        del role
        asked = TpmChallenge.decode(challenge)
        extra = sha256(challenge + csr_sha256).digest()
        pcrs = asked.pcrs if self.pcrs is None else self.pcrs
        quote = self.tpm.quote(extra, pcrs)
        answer = TpmAnswer(
            secret=self.tpm.activate(asked.id_object, asked.encrypted_secret),
            quote=quote,
            signature=self.tpm.sign(quote),
            values=self.tpm.values(pcrs),
            log=self.log,
            certification=None if self.node_key is None else self._certified(self.node_key, extra),
        )
        return self.shown(replace(answer, **self.changes))

    def shown(self, answer: TpmAnswer | None) -> bytes:
        """Return evidence with this answer."""
        return TpmEvidence(
            self.tpm.ek, self.certificate, self.intermediates, self.tpm.ak, answer
        ).encode()

    def _certified(self, key: TpmKey, extra: bytes) -> Certification:
        public = area(key, SIGNING)
        attest = self.tpm.certify(extra, name_of(public))
        return Certification(public, attest, self.tpm.sign(attest))


async def enrol(bench: Bench, tpm: SoftTpm, *, pool: str = "web", role: str = "node") -> None:
    """Enrol a TPM by plain SQL."""
    await bench.fetch(
        "INSERT INTO tpm_endorsements (ek_sha256, tenant, pool, role, allowed_kinds, created_by)"
        " VALUES ($1, 'acme', $2, $3, '{diag.*}', 'test')",
        sha256(tpm.ek[2:]).digest(),
        pool,
        role,
    )


async def set_policy(bench: Bench, policy: dict[str, Any], *, pool: str = "web") -> None:
    """Say what TPMs of a pool have to show."""
    await bench.fetch(
        "INSERT INTO tpm_policies (tenant, pool, policy, updated_by) VALUES ('acme', $1, $2::text::jsonb, 'test')"
        " ON CONFLICT (tenant, pool) DO UPDATE SET policy = excluded.policy",
        pool,
        json.dumps(policy),
    )
