"""What real and software TPMs have made: keys, quotes, certifications; a folder is one machine's.

The files of a folder vouch for each other: a name for its area, a quote for its key, its nonce and its values.
Which belong together is told by what holds, and by their names' common beginnings.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.vectors.judging import Entry, Result, accepts, not_run, refuses, same, spread
from tests.vectors.kinds.tpm_attestations import Attestations
from tests.vectors.kinds.tpm_certificates import NOW
from tests.vectors.kinds.tpm_credentials import NO_KEY, blob, key_places
from tests.vectors.kinds.tpm_folders import Folder
from tests.vectors.kinds.tpm_logs import replays
from tests.vectors.kinds.tpm_values import of_the_log, whole
from watchword.handlers.attestors.tpm.algorithms import BANKS
from watchword.handlers.attestors.tpm.certificates import in_file, read_certificate, unwrap
from watchword.handlers.attestors.tpm.credential import read_encrypted_secret, read_id_object
from watchword.handlers.attestors.tpm.endorsement import Anchors, check_endorsement
from watchword.handlers.attestors.tpm.structures import read_public_2b

_NOBODY = "no attestor of ours takes this"


def recordings(entries: Sequence[Entry]) -> Iterator[Result]:
    """Judge every file of every folder."""
    folders: dict[Path, list[Entry]] = {}
    for entry in entries:
        folders.setdefault(entry.folder, []).append(entry)
    for folder, mine in folders.items():
        yield from _Machine(folder, mine).judged()


class _Machine:
    """The recordings of one folder."""

    def __init__(self, folder: Path, entries: Sequence[Entry]) -> None:
        self._folder = Folder.at(folder)
        self._attestations = Attestations(self._folder)
        self._entries = {entry.name: entry for entry in entries}

    def judged(self) -> Iterator[Result]:
        for entry in self._entries.values():
            yield from self._one(entry)

    def _one(self, entry: Entry) -> Iterator[Result]:
        name, stem = entry.name, entry.name.partition(".")[0]
        rules: tuple[tuple[str, Callable[[Entry], Iterator[Result]]], ...] = (
            (r".*\.pub", self._public),
            (r".*\.name", self._name),
            (r"(issuer|root).*\.pem", self._authority),
            (r".*\.pem", self._pem),
            (r".*(crt|cert)\.der", self._certificate),
            (r"cred.*\.blob", self._blob),
            (r"cred\.(idobject|encsecret)", self._credential),
            (r".*creation\.(attest|sig)|.*creation-data|(ak-)?create-(attest|data)\..*", self._attestations.creation),
            (r".*certify\.(attest|sig)", self._attestations.certified),
            (r"quote.*\.(msg|sig|pcrs|rawsig)|quote(sig|pcr)?\.out|pcrs.*\.(json|txt)|nonce\.bin", self._attestations.quote),
            (r"attest.*\.json", self._attestations.decoded),
            (r"eventlog\.bin", self._log),
            (r"secret\.bin", lambda e: iter((not_run(e, NO_KEY),))),
        )  # fmt: skip
        for pattern, judge in rules:
            if re.fullmatch(pattern, name):
                yield from judge(entry)
                return
        yield not_run(entry, f"{_NOBODY} ({stem})")

    # Keys

    def _public(self, entry: Entry) -> Iterator[Result]:
        """An area is the key of its PEM and has its name; where there is none, what its key depends on counts."""
        data = whole(entry.data())
        name = self._folder.path / f"{Path(entry.name).stem}.name"
        pem = self._folder.pem_of(Path(entry.name).stem)
        created = self._folder.created_name() if Path(entry.name).stem == "ak" else None

        def take(data: bytes) -> None:
            public = read_public_2b(data)
            if pem is not None:
                same(public.key, pem)
            if name.exists():
                same(public.name, name.read_bytes())
            if created is not None:
                same(public.name, created)

        vouched = name.exists() or created is not None
        yield accepts(entry, take, data, flips=spread(len(data)) if vouched else key_places(data))

    def _name(self, entry: Entry) -> Iterator[Result]:
        name = self._folder.keys[Path(entry.name).stem].name
        yield accepts(entry, lambda data: same(data, name))

    def _pem(self, entry: Entry) -> Iterator[Result]:
        stem = Path(entry.name).stem
        key = self._folder.keys.get(stem) or self._folder.keys.get(stem.removesuffix("pub"))
        if key is None:  # the quote vouches for it
            yield from self._attestations.quote(entry)
            return
        yield accepts(entry, lambda data: same(load_pem_public_key(data), key.key), flips=())

    # Certificates

    def _certificate(self, entry: Entry) -> Iterator[Result]:
        data = entry.data()
        if "platform certificate" in entry.verdict:
            yield refuses(entry, self._endorse, data, case="as an endorsement")
            return
        yield accepts(entry, self._endorse, data)
        key = read_certificate(unwrap(data)).key
        others = [k for k in self._folder.keys.values() if k.key != key]
        for other in others[:1]:
            yield refuses(entry, partial(self._endorse, ek=other), data, case="another key")

    def _endorse(self, data: bytes, ek: object = None) -> None:
        shown = ek or SimpleNamespace(key=read_certificate(unwrap(data)).key)
        roots, between = self._authorities()
        check_endorsement(data, between, shown, roots, NOW)  # type: ignore[arg-type] # its key is what counts

    def _authorities(self) -> tuple[Anchors, list[bytes]]:
        folders = [
            self._folder.path,
            *sorted(p for p in self._folder.path.parent.iterdir() if p.is_dir()),
        ]
        folder = next(f for f in folders if any(f.glob("*root*.pem")))
        roots = [c for p in folder.glob("*root*.pem") for c in in_file(p.read_bytes())]
        between = [c for p in folder.glob("*issuer*.pem") for c in in_file(p.read_bytes())]
        return Anchors.of([read_certificate(der) for der in roots]), between

    def _authority(self, entry: Entry) -> Iterator[Result]:
        """A CA is right if the folder's certificates lead through it: another key in its place is not."""
        [der] = in_file(entry.data())
        roots, between = self._authorities()
        leaf = next(self._folder.path.glob("*crt.der")).read_bytes()
        key = SimpleNamespace(key=read_certificate(unwrap(leaf)).key)
        is_root = "root" in entry.name

        def take(data: bytes) -> None:
            anchors = Anchors.of([read_certificate(data)]) if is_root else roots
            others = between if is_root else [data]
            check_endorsement(leaf, others, key, anchors, NOW)  # type: ignore[arg-type] # as above

        # A root's own signature is nobody's business; the places are those of its key.
        numbers = read_certificate(der).key.public_numbers()
        places = None
        if is_root:
            number = numbers.n if isinstance(numbers, rsa.RSAPublicNumbers) else numbers.x
            at = der.index(number.to_bytes((number.bit_length() + 7) // 8, "big"))
            places = range(at, at + 32, 5)
        yield accepts(entry, take, der, flips=places)

    # Credentials

    def _blob(self, entry: Entry) -> Iterator[Result]:
        yield blob(entry)

    def _credential(self, entry: Entry) -> Iterator[Result]:
        read = read_id_object if entry.name.endswith("idobject") else read_encrypted_secret
        yield accepts(entry, read, flips=(0, 1))

    # Logs

    def _log(self, entry: Entry) -> Iterator[Result]:
        expected: dict[str, dict[str, str]] = {}
        for path in sorted(self._folder.path.glob("pcrs*.json")):
            said = json.loads(path.read_text())
            expected |= said if set(said) <= set(BANKS.values()) else {path.stem[5:]: said}
        yield replays(entry, of_the_log(entry, expected))
