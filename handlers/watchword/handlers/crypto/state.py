"""What a machine keeps for us between two rounds, and can neither read nor move.

A state is `0x01`, the key's name behind its length, the expiry (milliseconds since 1970, 8 bytes),
32 random bytes of salt, and AES-256-GCM ciphertext with its tag. The key of each state is its own:
HKDF-SHA256 (RFC 5869) of the challenge key over the salt. A key that is used once needs no nonce
of its own, so the nonce is zero, and no number of states wears a challenge key out.
"""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from watchword.handlers.errors import SealBroken
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.ids import Role

CHALLENGE_KEY_BYTES = 32

_FORMAT = 1
_LABEL = b"watchword state v1"
_KID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TIME_BYTES = 8
_SALT_BYTES = 32
_NONCE = bytes(12)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class StateSealer:
    """Seals and opens states under the challenge keys."""

    def __init__(
        self,
        keys: Mapping[str, bytes],
        active: str,
        *,
        retired_until: Mapping[str, datetime] | None = None,
    ) -> None:
        """Take 32-byte keys by name. States are sealed under the active one, opened under any.

        A retired one opens until its time; whoever steals it later can make no state that counts.

        Raises:
            ValueError: a name or a key is of another form, or the active one is not among them.
        """
        if active not in keys:
            message = "the active challenge key is missing"
            raise ValueError(message)
        for kid, key in keys.items():
            if not _KID.fullmatch(kid) or len(key) != CHALLENGE_KEY_BYTES:
                message = f"challenge key {kid!r} is not {CHALLENGE_KEY_BYTES} bytes under a name"
                raise ValueError(message)
        self._keys = dict(keys)
        self._active = active
        self._retired_until = dict(retired_until or {})

    def seal(
        self,
        data: bytes,
        *,
        attestor: str,
        attestor_version: str,
        role: Role,
        csr_sha256: bytes,
        expires_at: datetime,
        now: datetime,
    ) -> bytes:
        """Return `data` sealed for this attestor, version, role and CSR, until `expires_at`.

        Raises:
            ValueError: `expires_at` is not after `now`: the state could never be opened.
        """
        if expires_at <= now:
            message = "a state must expire in the future"
            raise ValueError(message)
        head = (
            bytes((_FORMAT, len(self._active)))
            + self._active.encode()
            + ((expires_at - _EPOCH) // _MILLISECOND).to_bytes(_TIME_BYTES, "big")
            + os.urandom(_SALT_BYTES)
        )
        bound = _bound(head, attestor, attestor_version, role, csr_sha256)
        return head + _aead(self._keys[self._active], head).encrypt(_NONCE, data, bound)

    def open(
        self,
        state: bytes,
        *,
        attestor: str,
        attestor_version: str,
        role: Role,
        csr_sha256: bytes,
        now: datetime,
    ) -> bytes:
        """Return the data of a state that was sealed for exactly this, and has not expired.

        Raises:
            SealBroken: anything else.
        """
        # 1. The head is of our form, and its key is held and not past its overlap.
        # 2. Everything is authentic: the head (with the expiry) and what the state is bound to.
        # 3. It has not expired. Judged last, on an authentic time.

        # Step 1
        kid_bytes = state[1] if len(state) > 1 else 0
        times_at = 2 + kid_bytes
        head_bytes = times_at + _TIME_BYTES + _SALT_BYTES
        if len(state) < head_bytes or state[0] != _FORMAT:
            raise SealBroken
        head = state[:head_bytes]
        kid = head[2:times_at].decode("ascii", "replace")
        key = self._keys.get(kid)
        if key is None or ((until := self._retired_until.get(kid)) is not None and until <= now):
            raise SealBroken

        # Step 2
        bound = _bound(head, attestor, attestor_version, role, csr_sha256)
        try:
            data = _aead(key, head).decrypt(_NONCE, state[head_bytes:], bound)
        except (InvalidTag, ValueError):
            raise SealBroken from None

        # Step 3
        expires_ms = int.from_bytes(head[times_at : times_at + _TIME_BYTES], "big")
        if (now - _EPOCH) // _MILLISECOND >= expires_ms:
            message = "the state has expired"
            raise SealBroken(message)
        return data


def _aead(challenge_key: bytes, head: bytes) -> AESGCM:
    """Return the cipher of one state: its key comes from the salt, the last part of the head."""
    derived = HKDF(SHA256(), CHALLENGE_KEY_BYTES, head[-_SALT_BYTES:], _LABEL).derive(challenge_key)
    return AESGCM(derived)


def _bound(
    head: bytes, attestor: str, attestor_version: str, role: Role, csr_sha256: bytes
) -> bytes:
    return _LABEL + length_prefixed(
        head, attestor.encode(), attestor_version.encode(), role.encode(), csr_sha256
    )
