"""Provers of this machine: where each finds its evidence. Files are read when evidence is made, and kept nowhere."""

from collections.abc import Callable
from pathlib import Path

from watchword.handlers.attestors.cloud_iid.prover import CloudIidProver, Provider
from watchword.handlers.attestors.discovery.prover import DiscoveryProver
from watchword.handlers.attestors.image.prover import ImageProver
from watchword.handlers.attestors.tpm.prover import TpmProver
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence, Prover, read_source
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.metadata import LinkLocalMetadata
from watchword.streams.agent.tpm.certificate import read_endorsement
from watchword.streams.agent.tpm.chip import TssChip
from watchword.streams.agent.tpm.node_key import is_in_tpm
from watchword.streams.agent.tpm.options import AkKind, EkKind

_MAX_FILE_BYTES = 256 * 1024
_MAX_LOG_BYTES = 2 * 1024 * 1024


def certificate_prover(certificates: Path, key: Path, trust_domain: str) -> Prover:
    """Show the certificate in a PEM file (leaf first, then intermediates), and prove its key."""
    return X509PopProver(_reading(certificates), FileKey(_reading(key)), trust_domain)


def own_certificate_prover(keystore: Keystore, trust_domain: str) -> Prover:
    """Show the certificate that this machine was given when it joined: the way back for one that expired."""

    def own(name: str) -> Callable[[], bytes]:
        def read() -> bytes:
            identity = keystore.identity()
            if identity is None:
                message = "this machine has no certificate of its own"
                raise NoEvidence(message)
            return _reading(identity.folder / name)()

        return read

    return X509PopProver(own("cert.pem"), FileKey(own("key.pem")), trust_domain)


def image_prover(file: Path | None, text: str, second: Prover | None = None) -> Prover:
    """Show the secret of the image that this machine runs, in a file or this text, and what else the image asks for."""
    if file is None:
        return ImageProver(lambda: text, second)
    return ImageProver.of_file(file, second)


def assertion_prover(file: Path) -> Prover:
    """Show what the site's agent says of this machine, in a file that it writes, and writes again."""
    return DiscoveryProver.of_file(file)


def cloud_prover(provider: Provider, audience: str) -> Prover:
    """Show what this machine's cloud signs; its metadata service is asked anew for each round."""
    return CloudIidProver(provider, LinkLocalMetadata(), audience)


def chip_of(
    *,
    tcti: str | None = None,
    ek: EkKind = "auto",
    ak: AkKind = "p256",
    certificate: Path | None = None,
) -> TssChip:
    """Return this machine's TPM."""

    def handed_in() -> tuple[bytes, tuple[bytes, ...]]:
        if certificate is None:
            return b"", ()
        return read_endorsement(_reading(certificate)())

    return TssChip(tcti, ek, ak, None if certificate is None else handed_in)


def tpm_prover(keystore: Keystore, chip: TssChip, event_log: Path) -> Prover:
    """Show this machine's TPM; have it certify the node's key, where that is in it."""

    def log() -> bytes:
        try:
            with event_log.open("rb") as file:
                return file.read(_MAX_LOG_BYTES + 1)
        except OSError:  # not every firmware has one, and the policy says whether it has to
            return b""

    def node_key() -> bytes | None:
        exchange = keystore.exchange()
        pem = b"" if exchange is None else exchange.key_pem()
        return pem if is_in_tpm(pem) else None

    return TpmProver(chip, log=log, node_key=node_key)


def _reading(path: Path) -> Callable[[], bytes]:
    def read() -> bytes:
        content = read_source(path, _MAX_FILE_BYTES)
        if len(content) > _MAX_FILE_BYTES:
            message = f"{path} is longer than {_MAX_FILE_BYTES} bytes"
            raise BadArgument(message)
        return content

    return read
