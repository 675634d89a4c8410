"""The anchors of the clouds: files in a folder, checked when they are loaded, changed without a restart.

One bad file spoils nothing but itself: it is named, and the rest load. What an expired certificate
means is one setting, because a provider's certificate is a pin of its key, and its dates say little.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding

from watchword.handlers.attestors.cloud_iid.jwks import read_key_set
from watchword.handlers.attestors.cloud_iid.manifest import (
    MANIFEST,
    MAX_FILE_BYTES,
    Entry,
    Problem,
    Purpose,
    read_manifest,
    same_second,
)
from watchword.handlers.attestors.cloud_iid.reasons import Unproven
from watchword.handlers.errors import ConfigRefused

Expired = Literal["refuse", "accept"]

_KEYS: Mapping[Purpose, tuple[str, ...]] = {
    "rsa2048": ("rsa-2048", "rsa-3072", "rsa-4096"),
    "rsa": ("rsa-1024", "rsa-2048", "rsa-3072", "rsa-4096"),
    "dsa": ("dsa-1024", "dsa-2048"),
    "root": ("rsa-2048", "rsa-3072", "rsa-4096", "ec-secp256r1", "ec-secp384r1", "ec-secp521r1"),
    "intermediate": (
        "rsa-2048",
        "rsa-3072",
        "rsa-4096",
        "ec-secp256r1",
        "ec-secp384r1",
        "ec-secp521r1",
    ),
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A certificate that counts, and what for."""

    entry: Entry
    certificate: x509.Certificate
    begins: datetime
    ends: datetime
    der: bytes
    key: CertificatePublicKeyTypes = field(compare=False)

    @classmethod
    def of(cls, entry: Entry, certificate: x509.Certificate) -> "Anchor":
        """Return the anchor."""
        return cls(
            entry,
            certificate,
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
            certificate.public_bytes(Encoding.DER),
            certificate.public_key(),
        )


@dataclass(frozen=True, slots=True)
class AnchorStatus:
    """How an anchor stands, for people and gauges."""

    source: str
    """Its file, or the address that Google's keys were fetched from."""
    provider: str
    partition: str
    region: str
    purpose: str
    days_left: int | None
    """Below 0: expired. A key set has no end."""
    last_used: datetime | None = None
    """When it last verified something; None since the start never."""


@dataclass(frozen=True, slots=True)
class AnchorSet:
    """What a folder held when it was loaded."""

    anchors: tuple[Anchor, ...] = ()
    keys: Mapping[str, rsa.RSAPublicKey] = field(default_factory=dict[str, rsa.RSAPublicKey])
    """Google's keys in files, by key id."""
    key_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key id → the file that it is in."""
    problems: tuple[Problem, ...] = ()
    aws: Mapping[tuple[str, Purpose], tuple[Anchor, ...]] = field(
        default_factory=dict[tuple[str, Purpose], tuple[Anchor, ...]]
    )
    """By region and purpose; two only while a region changes its key."""
    azure: Mapping[tuple[str, Purpose], tuple[Anchor, ...]] = field(
        default_factory=dict[tuple[str, Purpose], tuple[Anchor, ...]]
    )
    """By partition and purpose."""
    signers: dict[object, Any] = field(default_factory=dict[object, Any], compare=False)
    """Azure's signers that have been verified by these very anchors (`azure.py`): gone with them."""

    def status(self, now: datetime) -> list[AnchorStatus]:
        """Return how each certificate and key set stands; none was used."""
        found = [
            AnchorStatus(
                source=anchor.entry.file,
                provider=anchor.entry.provider,
                partition=anchor.entry.partition,
                region=anchor.entry.region,
                purpose=anchor.entry.purpose,
                days_left=(anchor.ends - now) // timedelta(days=1),
            )
            for anchor in self.anchors
        ]
        return found + [_key_set(file) for file in dict.fromkeys(self.key_files.values())]


def _key_set(source: str) -> AnchorStatus:
    return AnchorStatus(source, "gcp", "gcp", "", "jwks", None)


class AnchorFolder:
    """The anchors in force. `reload` replaces them at once or not at all."""

    def __init__(self, folder: Path | None, *, expired: Expired = "refuse") -> None:
        """Load the folder; without one only fetched keys count.

        Raises:
            ConfigRefused: it has no manifest that can be read.
        """
        self._folder = folder
        self._accept_expired = expired == "accept"
        self._used: dict[str, datetime] = {}
        self._fetched: dict[str, Mapping[str, rsa.RSAPublicKey]] = {}
        self._google: Mapping[str, rsa.RSAPublicKey] = {}
        self._stamp = self._stamped()
        self._current = AnchorSet()
        self.reload()

    @property
    def current(self) -> AnchorSet:
        """The set in force; take it once for one judgement."""
        return self._current

    @property
    def google_keys(self) -> Mapping[str, rsa.RSAPublicKey]:
        """Google's keys in force by key id, from files and from configured addresses."""
        return self._google

    def reload(self) -> AnchorSet:
        """Load the folder again and return the new set.

        Raises:
            ConfigRefused: the manifest cannot be read; the old set stays in force.
        """
        stamp = self._stamped()
        found = AnchorSet() if self._folder is None else load(self._folder)
        self._current, self._stamp = found, stamp
        self._merge_keys()
        return found

    def is_changed(self) -> bool:
        """Tell whether the manifest is another file, or was written again, since it was loaded."""
        return self._stamped() != self._stamp

    def put_keys(self, address: str, keys: Mapping[str, rsa.RSAPublicKey]) -> None:
        """Take what an operator's address answered, in the place of what it answered before."""
        self._fetched[address] = keys
        self._merge_keys()

    def in_force(self, anchors: Sequence[Anchor], now: datetime) -> list[Anchor]:
        """Return the anchors that count now.

        Raises:
            Unproven: `region-unknown` without any, `anchor-expired` if none is left.
        """
        if not anchors:
            raise Unproven("region-unknown")
        left = [
            anchor
            for anchor in anchors
            if self._accept_expired or anchor.begins <= now <= anchor.ends
        ]
        if not left:
            raise Unproven("anchor-expired")
        return left

    def used(self, anchor: Anchor, now: datetime) -> None:
        """Note that an anchor verified something."""
        self._used[anchor.entry.file] = now

    def used_key(self, kid: str, now: datetime) -> None:
        """Note that a key of Google's verified something, for the file or address that it is from."""
        source = self._current.key_files.get(kid)
        if source is None:
            source = next((url for url, keys in self._fetched.items() if kid in keys), None)
        if source is not None:
            self._used[source] = now

    def status(self, now: datetime) -> list[AnchorStatus]:
        """Return how each certificate and each source of Google's keys stands."""
        found = self._current.status(now)
        known = {status.source for status in found}
        found += [_key_set(url) for url in self._fetched if url not in known]
        return [replace(s, last_used=self._used.get(s.source)) for s in found]

    def _merge_keys(self) -> None:
        """Put the keys together: a file is an operator's own word, and wins over an address."""
        merged: dict[str, rsa.RSAPublicKey] = {}
        doubtful: set[str] = set()
        for keys in self._fetched.values():
            for kid, key in keys.items():
                if merged.setdefault(kid, key) != key:
                    doubtful.add(kid)  # which one was meant is anybody's guess
        for kid in doubtful:
            del merged[kid]
        self._google = {**merged, **self._current.keys}

    def _stamped(self) -> tuple[int, int, int] | None:
        if self._folder is None:
            return None
        try:
            found = (self._folder / MANIFEST).stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


def load(folder: Path) -> AnchorSet:
    """Return what the folder holds; every file that is left out is among the problems, and in the log.

    Raises:
        ConfigRefused: there is no manifest that can be read.
    """
    try:
        entries, problems = read_manifest(_bytes_of(folder / MANIFEST))
    except (OSError, ValueError) as error:
        raise ConfigRefused([f"{MANIFEST}: {type(error).__name__}"]) from None
    anchors: list[Anchor] = []
    keys: dict[str, rsa.RSAPublicKey] = {}
    key_files: dict[str, str] = {}
    partitions: dict[str, str] = {}
    for entry in entries:
        try:
            data = _bytes_of(folder / entry.file)
            if entry.purpose == "jwks":
                found, faults = read_key_set(data)
                problems += [Problem(entry.file, fault) for fault in faults]
                keys |= found
                key_files |= dict.fromkeys(found, entry.file)
                continue
            certificate = check_certificate(data, entry)
            if entry.region and partitions.setdefault(entry.region, entry.partition) != (
                entry.partition
            ):
                problems.append(Problem(entry.file, "the region is in another partition already"))
                continue
            anchors.append(Anchor.of(entry, certificate))
        except _UNREADABLE as error:
            problems.append(Problem(entry.file, _told(error)))
    for problem in problems:
        _log.warning("cloud anchor left out", file=problem.file, problem=problem.problem)
    return AnchorSet(
        anchors=tuple(anchors),
        keys=keys,
        key_files=key_files,
        problems=tuple(problems),
        aws=_grouped(a for a in anchors if a.entry.provider == "aws"),
        azure=_grouped(a for a in anchors if a.entry.provider == "azure"),
    )


def _grouped(anchors: Iterable[Anchor]) -> dict[tuple[str, Purpose], tuple[Anchor, ...]]:
    found: dict[tuple[str, Purpose], tuple[Anchor, ...]] = {}
    for anchor in anchors:
        key = (anchor.entry.region or anchor.entry.partition, anchor.entry.purpose)
        found[key] = (*found.get(key, ()), anchor)
    return found


_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    ConfigRefused,
)


def _told(error: Exception) -> str:
    if isinstance(error, ConfigRefused):
        return "; ".join(error.problems)
    return f"unreadable: {type(error).__name__}"


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        message = f"more than {MAX_FILE_BYTES} bytes"
        raise ConfigRefused([message])
    return data


def check_certificate(data: bytes, entry: Entry) -> x509.Certificate:
    """Return the certificate if it is what its entry says.

    Raises:
        ConfigRefused: it is not, and why.
        ValueError, TypeError, UnsupportedAlgorithm, InvalidVersion: it cannot be read.
    """
    pem = data.lstrip().startswith(b"-----BEGIN")
    certificate = (
        x509.load_pem_x509_certificate(data) if pem else x509.load_der_x509_certificate(data)
    )
    kind = key_type(certificate)
    if kind != entry.key_type:
        message = f"its key is {kind}, and the manifest says {entry.key_type}"
        raise ConfigRefused([message])
    if kind not in _KEYS[entry.purpose]:
        message = f"a key of type {kind} is not for {entry.purpose}"
        raise ConfigRefused([message])
    if not (
        same_second(entry.not_before, certificate.not_valid_before_utc)
        and same_second(entry.not_after, certificate.not_valid_after_utc)
    ):
        message = "its validity is not the manifest's"
        raise ConfigRefused([message])
    return certificate


def key_type(certificate: x509.Certificate) -> str:
    """Return the kind and size of a certificate's key, as manifests write it."""
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return f"rsa-{key.key_size}"
    if isinstance(key, dsa.DSAPublicKey):
        return f"dsa-{key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"ec-{key.curve.name}"
    return type(key).__name__
