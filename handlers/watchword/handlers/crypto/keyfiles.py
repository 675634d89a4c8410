"""Making and loading the keys of a deployment from its key directory (layout: `keydirectory`)."""

from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from cryptography import x509

from watchword.handlers.crypto.authority import DEFAULT_MAX_LIFETIME, Authority, CaKey
from watchword.handlers.crypto.camanifest import CaEntry, read_ca_manifest
from watchword.handlers.crypto.endorsements import pin_of
from watchword.handlers.crypto.keydirectory import KeyDirectory
from watchword.handlers.crypto.keymanifest import MANIFEST, KeyManifest, time_of
from watchword.handlers.crypto.keysets import HeldKey
from watchword.handlers.crypto.profile import BACKDATE, TRUST_DOMAIN
from watchword.handlers.crypto.state import StateSealer
from watchword.handlers.crypto.worker_keys import WorkerKeys
from watchword.handlers.errors import BadArgument, ConfigRefused, Conflict
from watchword.schemas.keyset import RetiredSigningKey
from watchword.schemas.times import parse_rfc3339

__all__ = ["WorkerKeys", "create_keys", "load_authority", "load_worker_keys", "pin_of"]

DECRYPTION_LIFETIME = timedelta(days=90)
"""How long agents may seal to a new decryption key, if nobody rotates it before."""

_SPIFFE = "spiffe://"
_NEVER = datetime(9000, 1, 1, tzinfo=UTC)
"""When a key that is only prepared begins and ends: it opens, and nobody is told of it."""

T = TypeVar("T")


def create_keys(directory: Path, trust_domain: str, now: datetime) -> WorkerKeys:
    """Make whatever keys are missing in a directory without a manifest, and return the keys.

    Idempotent: with a manifest nothing is made, and an attempt that was cut short is taken up where
    it stopped, because the manifest is written last and no key file is ever written over.

    Raises:
        BadArgument: the trust domain is not one of SPIFFE's.
        Conflict: the directory's keys are for another trust domain.
        ConfigRefused: what is there is not usable.
    """
    if not TRUST_DOMAIN.fullmatch(trust_domain):
        message = f"{trust_domain!r} is not a trust domain (lower case, as in a DNS name)"
        raise BadArgument(message)
    keys = KeyDirectory(directory)
    if not (directory / MANIFEST).exists():
        keys.make_folders()
        keys.make_ca(trust_domain, now=now)
        keys.make_signing()
        KeyManifest(
            version=1,
            trust_domain=trust_domain,
            decryption=(keys.make_decryption(begins=now - BACKDATE, lifetime=DECRYPTION_LIFETIME),),
            challenge=(keys.make_challenge(), keys.make_challenge()),
        ).write(directory)
    loaded = load_worker_keys(directory)
    if loaded.trust_domain != trust_domain:
        message = f"the keys in {directory} are for {loaded.trust_domain}, not for {trust_domain}"
        raise Conflict(message)
    return loaded


def load_worker_keys(directory: Path) -> WorkerKeys:
    """Return the keys that a worker holds. The CA key is not opened.

    Raises:
        ConfigRefused: the manifest or a key is missing, malformed or open to others; all at once.
    """
    manifest = KeyManifest.read(directory)
    keys = KeyDirectory(directory)
    problems: list[str] = []
    active = next((entry.kid for entry in manifest.signing if entry.state == "active"), None)
    signing = _collect(problems, partial(keys.signing, active))
    authorities = _collect(problems, partial(read_ca_manifest, directory))
    decryption: list[HeldKey] = []
    for entry in manifest.decryption:
        key = _collect(problems, partial(keys.decryption, entry.kid))
        if key is not None:
            begins, ends = time_of(entry.not_before), time_of(entry.not_after)
            is_published = begins is not None
            held = HeldKey(entry.kid, key, begins or _NEVER, ends or _NEVER, is_published)
            decryption.append(held)
    challenge: dict[str, bytes] = {}
    for name in (entry.kid for entry in manifest.challenge):
        secret = _collect(problems, partial(keys.challenge, name))
        if secret is not None:
            challenge[name] = secret
    waiting = [one for one in manifest.signing if one.state == "prepared"]
    for one in waiting:  # or nothing would say, before it is activated, that it cannot be used
        _collect(problems, partial(keys.signing, one.kid))
    if problems or signing is None or authorities is None:
        raise ConfigRefused(problems)
    return WorkerKeys(
        trust_domain=manifest.trust_domain,
        version=manifest.version + authorities.version,
        signing=signing,
        decryption=tuple(decryption),
        states=StateSealer(
            challenge,
            manifest.challenge[0].kid,
            retired_until={
                one.kid: parse_rfc3339(one.retired_until)
                for one in manifest.challenge
                if one.retired_until is not None
            },
        ),
        ca_certificates=tuple(b64decode(text) for text in authorities.active.certificates),
        authorities=tuple(
            b64decode(entry.certificates[-1])
            for entry in sorted(authorities.authorities, key=lambda one: one.state != "active")
        ),
        handovers=(*manifest.handovers, *(one.handover for one in waiting if one.handover)),
        retired=tuple(
            RetiredSigningKey(kid=one.kid, public=one.public, not_after=one.retired_until)
            for one in manifest.signing
            if one.state == "retired" and one.retired_until is not None
        ),
        kids=frozenset(
            (
                signing.kid,
                *(one.kid for one in waiting),
                *(held.kid for held in decryption),
                *challenge,
            )
        ),
    )


def load_authority(
    directory: Path,
    *,
    trust_domain: str | None = None,
    max_lifetime: timedelta = DEFAULT_MAX_LIFETIME,
) -> Authority:
    """Return the node CA of a directory, which needs to hold nothing but its two files.

    Without a `trust_domain` the one in the issuing certificate's SPIFFE ID counts.

    Raises:
        ConfigRefused: a file is missing, malformed or open to others; the certificates are no chain
            for the key; or nothing says which trust domain this is.
    """
    return authority_of(
        read_ca_manifest(directory).active,
        KeyDirectory(directory).ca_key_of,
        trust_domain=trust_domain,
        max_lifetime=max_lifetime,
    )


def authority_of(
    entry: CaEntry,
    key_of: Callable[[CaEntry], CaKey],
    *,
    trust_domain: str | None = None,
    max_lifetime: timedelta = DEFAULT_MAX_LIFETIME,
) -> Authority:
    """Return one node CA, whose key `key_of` finds; raises as `load_authority` and `key_of` do."""
    certificates = entry.loaded()
    return Authority(
        key_of(entry),
        certificates,
        trust_domain=trust_domain or _trust_domain_of(certificates[0]),
        max_lifetime=max_lifetime,
    )


def _trust_domain_of(issuer: x509.Certificate) -> str:
    """Return the trust domain of a CA's SPIFFE ID, which has no path (X509-SVID, 3.1)."""
    try:
        names = issuer.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        uris: list[str] = []
    else:
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1 or not uris[0].startswith(_SPIFFE):
        raise ConfigRefused(
            ["the CA certificate names no trust domain (a SPIFFE ID); configure it"]
        )
    return uris[0].removeprefix(_SPIFFE)


def _collect(problems: list[str], read: Callable[[], T]) -> T | None:
    """Return what was read, or note what is wrong with it."""
    try:
        return read()
    except ConfigRefused as error:
        problems += error.problems
        return None
