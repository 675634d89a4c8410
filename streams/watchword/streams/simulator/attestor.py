"""`sim-restricted`: an attestor as a stranger would write it, for machines of a simulation.

Whoever holds the simulation's key vouches for a name together with the CSR; the node may be told `diag.ping` and
nothing else. It is registered as an entry point, enabled by its id, and limited by `[attestors.sim-restricted]`, like
any other. It belongs on no worker that admits real machines.
"""

import os
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from watchword.handlers.attestor import (
    Admission,
    Evidence,
    JoinContext,
    Reason,
    Role,
    SchemaError,
    TenantId,
    length_prefixed,
    read_length_prefixed,
    refuser,
)
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence, ProverSettings, read_source, text_setting

ID = "sim-restricted"
VARIABLE = "SIM_RESTRICTED_KEY_FILE"
"""Names the file with the public key, PEM, for workers."""

TENANT, POOL = "sim", "fleet"
ALLOWED_KINDS = ("diag.ping",)

refuse = refuser(ID)

_PARTS = 3
_MAX_NAME = 64
_SIGNATURE_BYTES = 64


def signed_text(tenant: bytes, name: bytes, role: Role, csr_sha256: bytes) -> bytes:
    """Return what is signed for one machine, one role and one CSR."""
    return length_prefixed(b"sim-restricted v1", tenant, name, role.encode(), csr_sha256)


class RestrictedAttestor:
    """Admits machines that the simulation vouches for, and lets them be told next to nothing."""

    id = ID
    version = "1"
    roles = frozenset[Role](("node",))
    reasons = (
        Reason("malformed", "SIM0001", "low", "The evidence is no name with a signature."),
        Reason("bad-signature", "SIM0002", "high", "Another key vouches for it.", attack=True),
    )

    def __init__(self, key: Ed25519PublicKey) -> None:
        """Believe whoever signs with the private half of `key`."""
        self._key = key

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission:
        """Admit the machine that was signed for.

        Raises:
            Refused: `malformed`, `bad-signature`.
        """
        try:
            tenant, name, signature = read_length_prefixed(evidence.payload, _PARTS)
        except SchemaError:
            raise refuse("malformed") from None
        if tenant != TENANT.encode() or not 0 < len(name) <= _MAX_NAME:
            raise refuse("malformed")
        if len(signature) != _SIGNATURE_BYTES:
            raise refuse("malformed")
        try:
            said = signed_text(tenant, name, context.role, context.csr_sha256)
            self._key.verify(signature, said)
        except InvalidSignature:
            raise refuse("bad-signature") from None
        return Admission(
            tenant=TenantId(TENANT),
            role=context.role,
            pool=POOL,
            bind=sha256(b"sim-restricted\0" + name).digest(),
            allowed_kinds=ALLOWED_KINDS,
        )


class RestrictedProver:
    """Signs for a machine of this name."""

    id = ID

    def __init__(self, key: Ed25519PrivateKey, name: str) -> None:
        """Take the simulation's key."""
        self._key = key
        self._name = name.encode()

    async def evidence(self, csr_sha256: bytes, role: Role) -> bytes:
        """Return the name and the signature."""
        tenant = TENANT.encode()
        signature = self._key.sign(signed_text(tenant, self._name, role, csr_sha256))
        return length_prefixed(tenant, self._name, signature)

    async def answer(self, challenge: bytes, csr_sha256: bytes, role: Role) -> bytes:
        """Raise `NoEvidence`: there is one round."""
        del challenge, csr_sha256, role
        raise NoEvidence


def attestor_from_environment() -> RestrictedAttestor:
    """Return the attestor of a worker."""
    if VARIABLE not in os.environ:
        message = f"{VARIABLE} names no key; it is for simulations alone"
        raise LookupError(message)
    key = load_pem_public_key(Path(os.environ[VARIABLE]).read_bytes())
    if not isinstance(key, Ed25519PublicKey):
        message = f"{VARIABLE}: not an Ed25519 key"
        raise TypeError(message)
    return RestrictedAttestor(key)


def prover_from_settings(settings: ProverSettings) -> RestrictedProver:
    """Return the prover of a machine: settings `name`, and `key_file` with the simulation's key."""
    return RestrictedProver(
        read_key(Path(text_setting(settings, "key_file"))), text_setting(settings, "name")
    )


def read_key(file: Path) -> Ed25519PrivateKey:
    """Return the simulation's key.

    Raises:
        BadArgument: the file has no Ed25519 key, PEM.
        NoEvidence: it cannot be read.
    """
    try:
        key = load_pem_private_key(read_source(file, 4096), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        message = f"{file}: no Ed25519 key, PEM"
        raise BadArgument(message)
    return key
