"""A cloud whose CA we are: its anchors, its metadata service, and a verifier that knows them."""

import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.clouds import Certified, Folder, certify
from tests.support.metadata import Aws, Azure, Google
from watchword.handlers.attestors.cloud_iid.anchors import AnchorFolder
from watchword.handlers.attestors.cloud_iid.prover import Provider

ACCOUNTS: dict[Provider, str] = {
    "aws": "123456789012",
    "gcp": "acme-prod",
    "azure": "8a205152-b25a-417f-a676-80465535a6c9",
}
"""What an operator names, for the instances of the stand-ins."""


@cache
def key_of(kid: str) -> rsa.RSAPrivateKey:
    """Return one key for each name: they take long to make."""
    del kid
    return rsa.generate_private_key(65537, 2048)


def key_set(*kids: str) -> bytes:
    """Return what Google would publish for these keys."""
    keys: list[dict[str, str]] = []
    for kid in kids:
        numbers = key_of(kid).public_key().public_numbers()
        modulus = urlsafe_b64encode(numbers.n.to_bytes(256)).rstrip(b"=").decode()
        keys.append(
            {"alg": "RS256", "e": "AQAB", "kid": kid, "kty": "RSA", "n": modulus, "use": "sig"}
        )
    return json.dumps({"keys": keys}).encode()


def _fresh(name: str, **changes: object) -> Certified:
    now = datetime.now(UTC)
    times = {"not_before": now - timedelta(days=1), "not_after": now + timedelta(days=30)}
    return certify(name, **{**times, **changes})  # type: ignore[arg-type] # fields of `certify`


@dataclass
class Clouds:
    """All three clouds, and the folder of their anchors."""

    folder: Folder
    aws: Certified = field(default_factory=lambda: _fresh("AWS", key=key_of("aws")))
    azure_root: Certified = field(
        default_factory=lambda: _fresh("Root", ca=True, key=ec.generate_private_key(ec.SECP384R1()))
    )
    azure: Certified = field(init=False)
    between: Certified = field(init=False)

    def __post_init__(self) -> None:
        """Fill the folder."""
        self.between = _fresh("CA", ca=True, issuer=self.azure_root, key=key_of("azure-ca"))
        self.azure = _fresh(
            "signer",
            issuer=self.between,
            key=key_of("azure"),
            dns=("westeurope.metadata.azure.com",),
        )
        for region in ("eu-west-1", "us-east-1"):
            self.folder.add(self.aws.certificate, provider="aws", region=region, purpose="rsa2048")
        self.folder.add(self.azure_root.certificate, provider="azure", purpose="root")
        self.folder.add(self.between.certificate, provider="azure", purpose="intermediate")
        self.folder.add_keys(key_set("k1"))
        self.folder.write()

    @classmethod
    def at(cls, path: Path) -> "Clouds":
        """Return clouds with their anchors in this folder."""
        return cls(Folder(path))

    def anchors(self) -> AnchorFolder:
        """Return the anchors, loaded."""
        return AnchorFolder(self.folder.path)

    def service(self, provider: Provider) -> Aws | Google | Azure:
        """Return a metadata service of an instance of the account in `ACCOUNTS`."""
        if provider == "aws":
            return Aws(self.aws)
        return Google(key_of("k1")) if provider == "gcp" else Azure(self.azure)
