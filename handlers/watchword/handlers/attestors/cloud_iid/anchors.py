"""The anchors of the clouds: files in a folder, checked when they are loaded, changed without a restart.

One bad file spoils nothing but itself: it is named, and the rest load. What an expired certificate
means is one setting, because a provider's certificate is a pin of its key, and its dates say little.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa

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


@dataclass(frozen=True, slots=True)
class AnchorSet:
    """What a folder held when it was loaded."""

    anchors: tuple[Anchor, ...] = ()
    keys: Mapping[str, rsa.RSAPublicKey] = field(default_factory=dict[str, rsa.RSAPublicKey])
    """Google's keys, by key id."""
    problems: tuple[Problem, ...] = ()
    aws: Mapping[tuple[str, Purpose], tuple[Anchor, ...]] = field(
        default_factory=dict[tuple[str, Purpose], tuple[Anchor, ...]]
    )
    """By region and purpose; two only while a region changes its key."""
    azure: Mapping[tuple[str, Purpose], tuple[Anchor, ...]] = field(
        default_factory=dict[tuple[str, Purpose], tuple[Anchor, ...]]
    )
    """By partition and purpose."""


@dataclass(frozen=True, slots=True)
class AnchorStatus:
    """How an anchor stands, for people and gauges."""

    file: str
    provider: str
    partition: str
    region: str
    purpose: str
    days_left: int
    """Below 0: expired."""
    last_used: datetime | None
    """When it last verified something; None since the start never."""


class AnchorFolder:
    """The anchors in force. `reload` replaces them at once or not at all."""

    def __init__(self, folder: Path, *, expired: Expired = "refuse") -> None:
        """Load the folder; raises `ConfigRefused` if it has no manifest that can be read."""
        self._folder = folder
        self._accept_expired = expired == "accept"
        self._used: dict[str, datetime] = {}
        self._current = load(folder)

    @property
    def current(self) -> AnchorSet:
        """The set in force; take it once for one judgement."""
        return self._current

    def reload(self) -> AnchorSet:
        """Load the folder again and return the new set.

        Raises:
            ConfigRefused: the manifest cannot be read; the old set stays in force.
        """
        self._current = load(self._folder)
        return self._current

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
            if self._accept_expired
            or anchor.certificate.not_valid_before_utc
            <= now
            <= anchor.certificate.not_valid_after_utc
        ]
        if not left:
            raise Unproven("anchor-expired")
        return left

    def used(self, anchor: Anchor, now: datetime) -> None:
        """Note that an anchor verified something."""
        self._used[anchor.entry.file] = now

    def status(self, now: datetime) -> list[AnchorStatus]:
        """Return how each certificate stands."""
        return [
            AnchorStatus(
                file=anchor.entry.file,
                provider=anchor.entry.provider,
                partition=anchor.entry.partition,
                region=anchor.entry.region,
                purpose=anchor.entry.purpose,
                days_left=(anchor.certificate.not_valid_after_utc - now) // timedelta(days=1),
                last_used=self._used.get(anchor.entry.file),
            )
            for anchor in self._current.anchors
        ]


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
    partitions: dict[str, str] = {}
    for entry in entries:
        try:
            data = _bytes_of(folder / entry.file)
            if entry.purpose == "jwks":
                found, faults = read_key_set(data)
                problems += [Problem(entry.file, fault) for fault in faults]
                keys |= found
                continue
            certificate = _certificate(data, entry)
            if entry.region and partitions.setdefault(entry.region, entry.partition) != (
                entry.partition
            ):
                problems.append(Problem(entry.file, "the region is in another partition already"))
                continue
            anchors.append(Anchor(entry, certificate))
        except _UNREADABLE as error:
            problems.append(Problem(entry.file, _told(error)))
    for problem in problems:
        _log.warning("cloud anchor left out", file=problem.file, problem=problem.problem)
    return AnchorSet(
        anchors=tuple(anchors),
        keys=keys,
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


class _Unusable(Exception):
    """The file is not what its entry says."""


_UNREADABLE = (OSError, ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, _Unusable)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, _Unusable) else f"unreadable: {type(error).__name__}"


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        message = f"more than {MAX_FILE_BYTES} bytes"
        raise _Unusable(message)
    return data


def _certificate(data: bytes, entry: Entry) -> x509.Certificate:
    """Return the certificate if it is what its entry says."""
    pem = data.lstrip().startswith(b"-----BEGIN")
    certificate = (
        x509.load_pem_x509_certificate(data) if pem else x509.load_der_x509_certificate(data)
    )
    kind = key_type(certificate)
    if kind != entry.key_type:
        message = f"its key is {kind}, and the manifest says {entry.key_type}"
        raise _Unusable(message)
    if kind not in _KEYS[entry.purpose]:
        message = f"a key of type {kind} is not for {entry.purpose}"
        raise _Unusable(message)
    if not (
        same_second(entry.not_before, certificate.not_valid_before_utc)
        and same_second(entry.not_after, certificate.not_valid_after_utc)
    ):
        message = "its validity is not the manifest's"
        raise _Unusable(message)
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
