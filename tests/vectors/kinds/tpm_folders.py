"""What the recordings of one machine share: the keys of its folder, and how one was made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.vectors.judging import Mismatch
from tests.vectors.kinds.tpm_values import area_of, read_creation
from watchword.handlers.attestors.tpm.algorithms import Alg
from watchword.handlers.attestors.tpm.keys import check_ak
from watchword.handlers.attestors.tpm.reader import Malformed
from watchword.handlers.attestors.tpm.structures import Attributes, Public, Scheme


@dataclass(frozen=True)
class Folder:
    """The recordings of one machine."""

    path: Path
    keys: Mapping[str, Public]
    """The public areas, by their files' names without the suffix."""

    @classmethod
    def at(cls, path: Path) -> "Folder":
        """Read the keys of a folder."""
        return cls(
            path, {file.stem: area_of(file.read_bytes()) for file in sorted(path.glob("*.pub"))}
        )

    def pem_of(self, stem: str) -> object:
        """Return the key of the PEM of this name; None if there is none."""
        for name in (f"{stem}.pem", f"{stem}pub.pem"):
            if (path := self.path / name).exists():
                return load_pem_public_key(path.read_bytes())
        return None

    def candidates(self) -> Iterator[Public]:
        """Give the keys that may have signed an attestation."""
        for key in self.keys.values():
            try:
                check_ak(key)
            except Malformed:
                continue
            yield key
        for path in sorted(self.path.glob("ak*.pem")):
            if f"{path.stem.removesuffix('pub')}" not in self.keys:
                scheme = Scheme(Alg.RSASSA, Alg.SHA256)
                pem = load_pem_public_key(path.read_bytes())
                if isinstance(pem, rsa.RSAPublicKey):
                    yield Public(b"", Alg.RSA, Alg.SHA256, Attributes(0), b"", None, scheme, pem)

    def creation_files(self) -> tuple[Path, Path, Path, Path]:
        """Return attestation, signature, creation data and the area that they are about."""
        for names in (
            ("devkey.creation.attest", "devkey.creation.sig", "devkey.creation-data", "devkey.pub"),
            ("ak-create-attest.bin", "ak-create-attest.sig", "ak-create-data.bin", "ak.pub"),
            ("create-attest.bin", "create-attest.sig", "create-data.bin", "ak.pub"),
        ):
            files = tuple(self.path / name for name in names)
            if files[0].exists():
                return files[0], files[1], files[2], files[3]
        raise Mismatch

    def created_name(self) -> bytes | None:
        """Return the name that the attestation key was made with; None if none tells."""
        try:
            attest, _, _, area = self.creation_files()
        except Mismatch:
            return None
        return read_creation(attest.read_bytes()).name if area.stem == "ak" else None
