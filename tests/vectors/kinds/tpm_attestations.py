"""What TPMs have signed: quotes, certifications of keys, and of how they were made; and what others read in it.

The files of a quote vouch for each other: it holds for its key, its nonce and its values, and no longer once one is changed.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.vectors.judging import Entry, Mismatch, Result, accepts, not_run, refuses, same
from tests.vectors.kinds.tpm_folders import Folder
from tests.vectors.kinds.tpm_values import (
    Recorded,
    StoredValues,
    area_of,
    creation_digest,
    is_message,
    read_creation,
    whole,
)
from watchword.handlers.attestors.tpm.algorithms import BANKS, Alg
from watchword.handlers.attestors.tpm.attest import Quoted, holds, read_attest, read_signature
from watchword.handlers.attestors.tpm.quote import Stale, check_certified, check_quote
from watchword.handlers.attestors.tpm.reader import Malformed, sized

_SHA1 = "signed with SHA-1, by which no signature is taken"


class Attestations:
    """The attestations of one folder."""

    def __init__(self, folder: Folder) -> None:
        """Judge what is in a folder."""
        self._folder = folder

    def quote(self, entry: Entry) -> Iterator[Result]:
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
        signatures = [p.read_bytes() for p in sorted(self._folder.path.glob("quote*.sig"))]
        return bool(signatures) and all(s[2:4] == Alg.SHA1.to_bytes(2, "big") for s in signatures)

    def _weak_quote(self) -> None:
        """Judge each quote with each key: there is none of which the signature is taken."""
        for path in sorted(self._folder.path.glob("quote*.msg")):
            for key in self._folder.keys.values():
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
        for path in sorted(p for p in self._folder.path.iterdir() if is_message(p)):
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
            if (self._folder.path / n).exists()
        )
        raw = (self._folder.path / signature).read_bytes()
        if signature.endswith(".rawsig"):  # RSASSA with SHA-256, without what says so
            raw = b"\x00\x14\x00\x0b" + sized(raw)
        key = next(k for k in self._folder.candidates() if holds(read_signature(raw), message, k))
        stored = StoredValues.beside(path)
        recorded = Recorded(message, raw, stored.of(quoted), key, self._nonce(entry))
        return recorded, signature, stored.name

    def _nonce(self, entry: Entry) -> bytes:
        """Return what the manifest says that was asked: of the verdict, else of a file; else nothing was."""
        if (path := self._folder.path / "nonce.bin").exists():
            return path.read_bytes()
        said = entry.verdict
        if found := re.search(r"nonce\)? '?([0-9a-f]{32,})'?( x2)?", said):
            return bytes.fromhex(found[1]) * (2 if found[2] else 1)
        if found := re.search(r"nonce b'([^']+)'", said):
            return found[1].encode()
        return b""

    def certified(self, entry: Entry) -> Iterator[Result]:
        """A certification holds for its key, and no longer once a part of it is changed."""
        stem = entry.name.partition(".")[0]
        area = whole((self._folder.path / f"{stem}.pub").read_bytes())
        parts = {
            "attest": (self._folder.path / f"{stem}.certify.attest").read_bytes(),
            "sig": (self._folder.path / f"{stem}.certify.sig").read_bytes(),
        }
        ak = next(
            k
            for k in self._folder.candidates()
            if holds(read_signature(parts["sig"]), parts["attest"], k)
        )
        extra = read_attest(parts["attest"]).extra_data
        key = self._folder.pem_of(stem)

        def take(data: bytes) -> None:
            shown = {**parts, entry.name.rpartition(".")[2]: data}
            check_certified(area, shown["attest"], shown["sig"], ak, extra, key)

        yield accepts(entry, take)

    def creation(self, entry: Entry) -> Iterator[Result]:
        """TPM2_CertifyCreation is in no evidence of ours; its parts are, and are what is tried here."""
        attest, signature, data, area = self._folder.creation_files()
        raw = signature.read_bytes()
        part = {attest: "attest", signature: "signature", data: "data"}[
            self._folder.path / entry.name
        ]
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
                if not any(holds(signed, shown["attest"], k) for k in self._folder.candidates()):
                    raise Mismatch

        # Where no signature counts, name and digest do.
        whole = attest.read_bytes()
        at = [whole.index(public.name), whole.index(read_creation(whole).digest)]
        places = [n + m for n in at for m in (0, 20)] if is_weak and part == "attest" else None
        yield accepts(entry, take, flips=places)

    def decoded(self, entry: Entry) -> Iterator[Result]:
        """Another program's reading of an attestation is ours, field by field."""
        suffix = entry.name.removeprefix("attest").removesuffix(".json")
        path = next(
            p
            for p in sorted(self._folder.path.iterdir())
            if is_message(p) and p.stem.endswith(suffix)
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
