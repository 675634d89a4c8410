"""A CA key in a hardware module, by PKCS #11 (OASIS, version 2.40), over python-pkcs11.

The key never leaves the module: it is asked for ECDSA over a digest (`CKM_ECDSA`), which returns r and s
as they are, and X.509 has them as DER (RFC 3279, 2.2.3). Every error of the module's is translated here: one
that may pass is `SignerUnavailable`, and the session is made anew with the next call; a wrong PIN is
`ConfigRefused`, and is not tried again, because a module locks itself after a few.
"""

import importlib
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import load_der_public_key

from watchword.handlers.crypto.private_files import read_private
from watchword.handlers.errors import ConfigRefused, Conflict, SignerUnavailable

# It is an extra, and makes its classes at run time: by name, so that types are checked alike with and without it.
pkcs11: Any = importlib.import_module("pkcs11")
ec_encoding: Any = importlib.import_module("pkcs11.util.ec")
errors: Any = importlib.import_module("pkcs11.exceptions")

_CURVE = "secp256r1"
_BAD_PIN = (errors.PinIncorrect, errors.PinInvalid, errors.PinLenRange, errors.PinLocked)

T = TypeVar("T")


class Token:
    """One token of a module. Calls may come from any thread; the module sees one at a time."""

    def __init__(self, module: Path, label: str, pin_file: Path) -> None:
        """Name the module's library, the token, and the file (mode 0600) with the user's PIN. Opens nothing yet."""
        self._module = module
        self._label = label
        self._pin_file = pin_file
        self._lock = threading.RLock()
        self._session: Any = None
        self._refused_pin: str | None = None
        self._was_lost = False

    def key(self, label: str) -> "TokenKey":
        """Return the key pair of this label.

        Raises:
            SignerUnavailable: the module or the token is away.
            ConfigRefused: there is no such pair, more than one, or another kind; or the PIN is wrong.
        """
        return TokenKey(self, label, self._ask(lambda session: _public(session, label)))

    def make_key(self, label: str) -> "TokenKey":
        """Make a P-256 key pair, whose private half cannot be taken out; raises as `key`, and `Conflict`."""

        def make(session: Any) -> None:  # noqa: ANN401 - python-pkcs11 makes its classes at run time
            if list(session.get_objects({pkcs11.Attribute.LABEL: label})):
                message = f"token {self._label} has an object {label!r} already"
                raise Conflict(message)
            parameters = session.create_domain_parameters(
                pkcs11.KeyType.EC,
                {
                    pkcs11.Attribute.EC_PARAMS: ec_encoding.encode_named_curve_parameters(_CURVE),
                },
                local=True,
            )
            parameters.generate_keypair(
                store=True,
                label=label,
                private_template={
                    pkcs11.Attribute.SENSITIVE: True,
                    pkcs11.Attribute.EXTRACTABLE: False,
                },
            )

        self._ask(make, is_writing=True)
        return self.key(label)

    def sign(self, label: str, digest: bytes) -> bytes:
        """Return r and s, each of the curve's length, big endian; raises as `key`."""

        def sign(session: Any) -> bytes:  # noqa: ANN401 - as above
            private = session.get_key(object_class=pkcs11.ObjectClass.PRIVATE_KEY, label=label)
            signed: bytes = private.sign(digest, mechanism=pkcs11.Mechanism.ECDSA)
            return signed

        return self._ask(sign)

    def probe(self, label: str) -> None:
        """Return if the private key can be found; raises as `key`."""
        self._ask(
            lambda session: session.get_key(
                object_class=pkcs11.ObjectClass.PRIVATE_KEY, label=label
            )
        )

    def close(self) -> None:
        """End the session."""
        with self._lock, suppress(errors.PKCS11Error):
            session, self._session = self._session, None
            if session is not None:
                session.close()

    def _ask(self, question: Callable[[Any], T], *, is_writing: bool = False) -> T:
        with self._lock, self._translated():
            if is_writing:
                self.close()
                session = self._opened(is_writing=True)
                try:
                    return question(session)
                finally:
                    session.close()
            if self._session is None:
                self._session = self._opened(is_writing=False)
            return question(self._session)

    def _opened(self, *, is_writing: bool) -> Any:  # noqa: ANN401 - as above
        if self._refused_pin is not None:
            raise ConfigRefused([self._refused_pin])
        pin = read_private(self._pin_file).decode("utf-8", "replace").rstrip("\r\n")
        library = pkcs11.lib(str(self._module))
        if self._was_lost:
            # Whatever the module remembered of the token is of before it went away.
            library.reinitialize()
            self._was_lost = False
        return library.get_token(token_label=self._label).open(rw=is_writing, user_pin=pin)

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except _BAD_PIN as error:
            self._refused_pin = (
                f"token {self._label}: the PIN in {self._pin_file} is refused"
                f" ({type(error).__name__}); it is not tried again before a restart"
            )
            raise ConfigRefused([self._refused_pin]) from None
        except errors.MultipleObjectsReturned:
            raise ConfigRefused([f"token {self._label}: two keys have this label"]) from None
        except errors.NoSuchKey:
            self._lost()
            message = f"token {self._label}: the key is not there"
            raise SignerUnavailable(message) from None
        except (errors.PKCS11Error, RuntimeError, OSError) as error:
            self._lost()
            message = f"token {self._label}: {type(error).__name__}"
            raise SignerUnavailable(message) from None

    def _lost(self) -> None:
        self.close()
        self._session = None
        self._was_lost = True


class TokenKey(ec.EllipticCurvePrivateKey):
    """A handle to a private key in a token, of the kind that `cryptography`'s builders sign with."""

    is_remote = True

    def __init__(self, token: Token, label: str, public: ec.EllipticCurvePublicKey) -> None:
        """Take the token, the key's label, and its public half."""
        self._token = token
        self._label = label
        self._public = public

    @property
    def curve(self) -> ec.EllipticCurve:
        """The key's curve."""
        return self._public.curve

    @property
    def key_size(self) -> int:
        """The curve's size in bits."""
        return self._public.curve.key_size

    def public_key(self) -> ec.EllipticCurvePublicKey:
        """Return the public half."""
        return self._public

    def sign(
        self,
        data: bytes | bytearray | memoryview,
        signature_algorithm: ec.EllipticCurveSignatureAlgorithm,
    ) -> bytes:
        """Return the DER of an ECDSA signature over `data`; raises `SignerUnavailable`, `ConfigRefused`."""
        algorithm = signature_algorithm.algorithm
        if isinstance(algorithm, utils.Prehashed):
            digest = bytes(data)
        else:
            hashing = hashes.Hash(algorithm)
            hashing.update(data)
            digest = hashing.finalize()
        return der_of(self._token.sign(self._label, digest), self.key_size)

    def probe(self) -> None:
        """Return if the module still has the key; raises as `sign`."""
        self._token.probe(self._label)

    def exchange(self, algorithm: ec.ECDH, peer_public_key: ec.EllipticCurvePublicKey) -> bytes:
        """Refuse: a CA key signs."""
        del algorithm, peer_public_key
        _refuse()

    def private_numbers(self) -> ec.EllipticCurvePrivateNumbers:
        """Refuse: the key is not here."""
        _refuse()

    def private_bytes(self, *_: object, **__: object) -> bytes:
        """Refuse: the key is not here."""
        _refuse()

    def __copy__(self) -> "TokenKey":
        """Return itself: it is a handle."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> "TokenKey":
        """Return itself: it is a handle."""
        return self


def der_of(raw: bytes, key_bits: int) -> bytes:
    """Return r and s as they come from a module (PKCS #11, 2.3.1: each of the curve's length) as DER.

    Raises:
        SignerUnavailable: the module's answer has another length.
    """
    half = (key_bits + 7) // 8
    if len(raw) != 2 * half:
        message = f"the module's signature has {len(raw)} bytes, not {2 * half}"
        raise SignerUnavailable(message)
    r, s = int.from_bytes(raw[:half], "big"), int.from_bytes(raw[half:], "big")
    return utils.encode_dss_signature(r, s)


def _public(session: Any, label: str) -> ec.EllipticCurvePublicKey:  # noqa: ANN401 - as above
    found = session.get_key(object_class=pkcs11.ObjectClass.PUBLIC_KEY, label=label)
    session.get_key(object_class=pkcs11.ObjectClass.PRIVATE_KEY, label=label)
    if found.key_type is not pkcs11.KeyType.EC:
        raise ConfigRefused([f"the key {label!r} in the token is not an ECDSA key"])
    public = load_der_public_key(ec_encoding.encode_ec_public_key(found))
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ConfigRefused([f"the key {label!r} in the token is not an ECDSA key"])
    return public


def _refuse() -> NoReturn:
    message = "the key is in a hardware module"
    raise UnsupportedAlgorithm(message)
