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

from tests.vectors.judging import (
    Entry,
    Mismatch,
    Result,
    accepts,
    not_run,
    refuses,
    same,
    spread,
)
from tests.vectors.kinds.tpm_certificates import NOW
from tests.vectors.kinds.tpm_credentials import NO_KEY, blob, key_places
from tests.vectors.kinds.tpm_logs import replays
from tests.vectors.kinds.tpm_values import (
    Recorded,
    StoredValues,
    area_of,
    creation_digest,
    is_message,
    of_the_log,
    read_creation,
    whole,
)
from watchword.handlers.attestors.tpm.algorithms import BANKS, Alg
from watchword.handlers.attestors.tpm.attest import Quoted, holds, read_attest, read_signature
from watchword.handlers.attestors.tpm.certificates import in_file, read_certificate, unwrap
from watchword.handlers.attestors.tpm.credential import read_encrypted_secret, read_id_object
from watchword.handlers.attestors.tpm.endorsement import Anchors, check_endorsement
from watchword.handlers.attestors.tpm.keys import check_ak
from watchword.handlers.attestors.tpm.quote import Stale, check_certified, check_quote
from watchword.handlers.attestors.tpm.reader import Malformed, sized
from watchword.handlers.attestors.tpm.structures import (
    Attributes,
    Public,
    Scheme,
    read_public_2b,
)

_SHA1 = "signed with SHA-1, by which no signature is taken"
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
        self._folder = folder
        self._entries = {entry.name: entry for entry in entries}
        self._keys = {
            path.stem: area_of(path.read_bytes()) for path in sorted(folder.glob("*.pub"))
        }

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
            (r".*creation\.(attest|sig)|.*creation-data|(ak-)?create-(attest|data)\..*", self._creation),
            (r".*certify\.(attest|sig)", self._certified),
            (r"quote.*\.(msg|sig|pcrs|rawsig)|quote(sig|pcr)?\.out|pcrs.*\.(json|txt)|nonce\.bin", self._quote),
            (r"attest.*\.json", self._decoded),
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
        name = self._folder / f"{Path(entry.name).stem}.name"
        pem = self._pem_of(Path(entry.name).stem)
        created = self._created_name() if Path(entry.name).stem == "ak" else None

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
        name = self._keys[Path(entry.name).stem].name
        yield accepts(entry, lambda data: same(data, name))

    def _pem(self, entry: Entry) -> Iterator[Result]:
        stem = Path(entry.name).stem
        key = self._keys.get(stem) or self._keys.get(stem.removesuffix("pub"))
        if key is None:  # the quote vouches for it
            yield from self._quote(entry)
            return
        yield accepts(entry, lambda data: same(load_pem_public_key(data), key.key), flips=())

    def _pem_of(self, stem: str) -> object:
        for name in (f"{stem}.pem", f"{stem}pub.pem"):
            if (path := self._folder / name).exists():
                return load_pem_public_key(path.read_bytes())
        return None

    # Certificates

    def _certificate(self, entry: Entry) -> Iterator[Result]:
        data = entry.data()
        if "platform certificate" in entry.verdict:
            yield refuses(entry, self._endorse, data, case="as an endorsement")
            return
        yield accepts(entry, self._endorse, data)
        key = read_certificate(unwrap(data)).key
        others = [k for k in self._keys.values() if k.key != key]
        for other in others[:1]:
            yield refuses(entry, partial(self._endorse, ek=other), data, case="another key")

    def _endorse(self, data: bytes, ek: object = None) -> None:
        shown = ek or SimpleNamespace(key=read_certificate(unwrap(data)).key)
        roots, between = self._authorities()
        check_endorsement(data, between, shown, roots, NOW)  # type: ignore[arg-type] # its key is what counts

    def _authorities(self) -> tuple[Anchors, list[bytes]]:
        folders = [self._folder, *sorted(p for p in self._folder.parent.iterdir() if p.is_dir())]
        folder = next(f for f in folders if any(f.glob("*root*.pem")))
        roots = [c for p in folder.glob("*root*.pem") for c in in_file(p.read_bytes())]
        between = [c for p in folder.glob("*issuer*.pem") for c in in_file(p.read_bytes())]
        return Anchors.of([read_certificate(der) for der in roots]), between

    def _authority(self, entry: Entry) -> Iterator[Result]:
        """A CA is right if the folder's certificates lead through it: another key in its place is not."""
        [der] = in_file(entry.data())
        roots, between = self._authorities()
        leaf = next(self._folder.glob("*crt.der")).read_bytes()
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

    # Attestations

    def _quote(self, entry: Entry) -> Iterator[Result]:
        """Whatever is part of a quote is changed in its place, and the quote holds no longer."""
        if "must REFUSE" in entry.verdict and self._is_weak():
            yield refuses(entry, lambda _: self._weak_quote(), case=_SHA1)
            return
        found = list(self._quotes(entry))
        if not found:
            yield not_run(entry, "no quote here has this part")
        for case, recorded, part, places in found:
            yield accepts(
                entry,
                lambda data, recorded=recorded, part=part: recorded.check(**{part: data}),  # type: ignore[misc] # bound here
                getattr(recorded, part),
                flips=places,
                case=case,
            )
            if part == "message":
                yield self._stale(entry, recorded, case)

    def _is_weak(self) -> bool:
        signatures = [p.read_bytes() for p in sorted(self._folder.glob("quote*.sig"))]
        return bool(signatures) and all(s[2:4] == Alg.SHA1.to_bytes(2, "big") for s in signatures)

    def _weak_quote(self) -> None:
        """Judge each quote with each key: there is none of which the signature is taken."""
        for path in sorted(self._folder.glob("quote*.msg")):
            for key in self._keys.values():
                raw = path.with_suffix(".sig").read_bytes()
                check_quote(path.read_bytes(), raw, b"", key, b"")

    def _stale(self, entry: Entry, recorded: Recorded, case: str) -> Result:
        def take(nonce: bytes) -> None:
            try:
                recorded.check(nonce=nonce)
            except Stale:
                raise
            except Malformed as error:
                message = f"refused for another reason: {error}"
                raise RuntimeError(message) from error

        return refuses(entry, take, b"\x01" * 32, case=f"{case}, another nonce")

    def _quotes(self, entry: Entry) -> Iterator[tuple[str, Recorded, str, Sequence[int] | None]]:
        """Give the quotes that a file is part of, which part it is, and the places of it that count."""
        name = entry.name
        for path in sorted(p for p in self._folder.iterdir() if is_message(p)):
            recorded, signature, values = self._read(path, entry)
            part = {path.name: "message", signature: "signature", values: "values"}.get(name)
            if name == "nonce.bin":
                part = "nonce"
            elif part is None and name.endswith((".pem", ".txt")):
                part = "values" if name.endswith(".txt") else "signature"
            if part is not None:
                yield path.name, recorded, part, None

    def _read(self, path: Path, entry: Entry) -> tuple[Recorded, str, str]:
        message = path.read_bytes()
        quoted = read_attest(message).attested
        if not isinstance(quoted, Quoted):
            raise Mismatch
        stem = path.stem
        signature = next(
            n
            for n in (f"{stem}.sig", f"{stem}sig.out", f"{stem}.rawsig")
            if (self._folder / n).exists()
        )
        raw = (self._folder / signature).read_bytes()
        if signature.endswith(".rawsig"):  # RSASSA with SHA-256, without what says so
            raw = b"\x00\x14\x00\x0b" + sized(raw)
        key = next(k for k in self._candidates() if holds(read_signature(raw), message, k))
        stored = StoredValues.beside(path)
        recorded = Recorded(message, raw, stored.of(quoted), key, self._nonce(entry))
        return recorded, signature, stored.name

    def _candidates(self) -> Iterator[Public]:
        for key in self._keys.values():
            try:
                check_ak(key)
            except Malformed:
                continue
            yield key
        for path in sorted(self._folder.glob("ak*.pem")):
            if f"{path.stem.removesuffix('pub')}" not in self._keys:
                scheme = Scheme(Alg.RSASSA, Alg.SHA256)
                pem = load_pem_public_key(path.read_bytes())
                if isinstance(pem, rsa.RSAPublicKey):
                    yield Public(b"", Alg.RSA, Alg.SHA256, Attributes(0), b"", None, scheme, pem)

    def _nonce(self, entry: Entry) -> bytes:
        """Return what the manifest says that was asked: of the verdict, else of a file; else nothing was."""
        if (path := self._folder / "nonce.bin").exists():
            return path.read_bytes()
        said = entry.verdict
        if found := re.search(r"nonce\)? '?([0-9a-f]{32,})'?( x2)?", said):
            return bytes.fromhex(found[1]) * (2 if found[2] else 1)
        if found := re.search(r"nonce b'([^']+)'", said):
            return found[1].encode()
        return b""

    def _certified(self, entry: Entry) -> Iterator[Result]:
        stem = entry.name.partition(".")[0]
        area = whole((self._folder / f"{stem}.pub").read_bytes())
        parts = {
            "attest": (self._folder / f"{stem}.certify.attest").read_bytes(),
            "sig": (self._folder / f"{stem}.certify.sig").read_bytes(),
        }
        ak = next(
            k for k in self._candidates() if holds(read_signature(parts["sig"]), parts["attest"], k)
        )
        extra = read_attest(parts["attest"]).extra_data
        key = self._pem_of(stem)

        def take(data: bytes) -> None:
            shown = {**parts, entry.name.rpartition(".")[2]: data}
            check_certified(area, shown["attest"], shown["sig"], ak, extra, key)

        yield accepts(entry, take)

    def _creation(self, entry: Entry) -> Iterator[Result]:
        """TPM2_CertifyCreation is in no evidence of ours; its parts are, and are what is tried here."""
        attest, signature, data, area = self._creation_files()
        raw = signature.read_bytes()
        part = {attest: "attest", signature: "signature", data: "data"}[self._folder / entry.name]
        is_weak = raw[2:4] == Alg.SHA1.to_bytes(2, "big")
        if is_weak and part == "signature":
            yield not_run(entry, _SHA1)
            return
        public = area_of(area.read_bytes())

        def take(changed: bytes) -> None:
            shown = {
                "attest": attest.read_bytes(),
                "signature": raw,
                "data": data.read_bytes(),
                part: changed,
            }
            said = read_creation(shown["attest"])
            same(said.name, public.name)
            same(said.digest, creation_digest(public, shown["data"]))
            if not is_weak:
                signed = read_signature(shown["signature"])
                if not any(holds(signed, shown["attest"], k) for k in self._candidates()):
                    raise Mismatch

        # Where no signature counts, name and digest do.
        whole = attest.read_bytes()
        at = [whole.index(public.name), whole.index(read_creation(whole).digest)]
        places = [n + m for n in at for m in (0, 20)] if is_weak and part == "attest" else None
        yield accepts(entry, take, flips=places)

    def _creation_files(self) -> tuple[Path, Path, Path, Path]:
        """Return attestation, signature, creation data and the area that they are about."""
        for names in (
            ("devkey.creation.attest", "devkey.creation.sig", "devkey.creation-data", "devkey.pub"),
            ("ak-create-attest.bin", "ak-create-attest.sig", "ak-create-data.bin", "ak.pub"),
            ("create-attest.bin", "create-attest.sig", "create-data.bin", "ak.pub"),
        ):
            files = tuple(self._folder / name for name in names)
            if files[0].exists():
                return files[0], files[1], files[2], files[3]
        raise Mismatch

    def _created_name(self) -> bytes | None:
        try:
            attest, _, _, area = self._creation_files()
        except Mismatch:
            return None
        return read_creation(attest.read_bytes()).name if area.stem == "ak" else None

    # What was decoded from them, and logs

    def _decoded(self, entry: Entry) -> Iterator[Result]:
        """Another program's reading of an attestation is ours, field by field."""
        suffix = entry.name.removeprefix("attest").removesuffix(".json")
        path = next(
            p for p in sorted(self._folder.iterdir()) if is_message(p) and p.stem.endswith(suffix)
        )
        ours = read_attest(path.read_bytes())
        if not isinstance(ours.attested, Quoted):
            raise Mismatch
        fields = {
            "qualifiedSigner": ours.signer.hex(),
            "extraData": ours.extra_data.hex(),
            "clock": ours.clock.milliseconds,
            "resetCount": ours.clock.resets,
            "restartCount": ours.clock.restarts,
            "safe": int(ours.clock.safe),
            "firmware": f"{ours.firmware:016x}",
            "pcrSelect": {BANKS[s.bank]: list(s.pcrs) for s in ours.attested.selections},
            "pcrDigest": ours.attested.digest.hex(),
        }

        def take(data: bytes) -> None:
            try:
                said = json.loads(data)
            except ValueError:
                raise Mismatch from None
            same({name: said.get(name) for name in fields}, fields)

        text = entry.data()
        places = [text.index(ours.attested.digest.hex().encode()) + n for n in (0, 9, 40)]
        yield accepts(entry, take, flips=places)

    def _log(self, entry: Entry) -> Iterator[Result]:
        expected: dict[str, dict[str, str]] = {}
        for path in sorted(self._folder.glob("pcrs*.json")):
            said = json.loads(path.read_text())
            expected |= said if set(said) <= set(BANKS.values()) else {path.stem[5:]: said}
        yield replays(entry, of_the_log(entry, expected))
