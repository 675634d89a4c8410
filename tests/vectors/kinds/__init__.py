"""The kinds of vectors that something of ours judges, by the manifest's names. A new one is a module here, and a line."""

from collections.abc import Mapping

from tests.vectors.judging import Kind
from tests.vectors.kinds import (
    clouds,
    csr,
    ed25519,
    hpke,
    tpm_certificates,
    tpm_credentials,
    tpm_logs,
    tpm_recordings,
    wycheproof,
    x509_certificates,
    x509_limbo,
)

KINDS: Mapping[str, Kind] = {
    "tpm-ek": tpm_certificates.endorsements,
    "tpm-ek-ca": tpm_certificates.authorities,
    "tpm-credential": tpm_credentials.credentials,
    "tpm-quote": tpm_recordings.recordings,
    "swtpm": tpm_recordings.recordings,
    "tpm-eventlog": tpm_logs.logs,
    "x509-cert": x509_certificates.certificates,
    "x509-limbo": x509_limbo.paths,
    "csr": csr.requests,
    "hpke": hpke.vectors,
    "ed25519": ed25519.signatures,
    "wycheproof": wycheproof.groups,
    "aws-iid": clouds.aws,
    "azure-imds": clouds.azure,
    "gcp-token": clouds.google,
    "aws-certs": clouds.anchors,
    "azure-certs": clouds.anchors,
}
