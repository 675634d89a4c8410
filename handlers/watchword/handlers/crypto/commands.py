"""What a node shows to get its commands, and the commands as they are signed.

`sealed` of the request holds, length-prefixed: the form `commands/1`, the SHA-256 of the current certificate's
TBSCertificate (32 bytes), the SubjectPublicKeyInfo of its key (DER), `Reports` (canonical JSON), and a signature over
`signed_text`. The text names the CSR, the request and the reports, so that a signature is good for one request.
"""

from dataclasses import dataclass

from watchword.handlers.crypto.documents import read_document
from watchword.handlers.crypto.jws import JwsSigner, verify
from watchword.handlers.crypto.renewals import check_shown
from watchword.schemas.canonical import length_prefixed, read_length_prefixed, unb64
from watchword.schemas.commands import MAX_PAYLOAD_BYTES, Command, Reports
from watchword.schemas.errors import WrongShape
from watchword.schemas.responses import TYP_COMMAND

LABEL = b"watchword commands v1"
FORM = b"commands/1"


@dataclass(frozen=True, slots=True)
class FetchEvidence:
    """What is sealed in a request of kind `commands`."""

    tbs_sha256: bytes
    """SHA-256 of the current certificate's TBSCertificate: what names a certificate."""
    spki_der: bytes
    """The key that the certificate is for; its SHA-256 has to be the one that the store has."""
    reports: Reports
    signature: bytes

    def encode(self) -> bytes:
        """Return the payload."""
        reports = self.reports.write()
        return length_prefixed(FORM, self.tbs_sha256, self.spki_der, reports, self.signature)

    @classmethod
    def decode(cls, payload: bytes) -> "FetchEvidence":
        """Return what a payload shows; raises `SchemaError` for another form or a part out of bounds."""
        form, tbs_sha256, spki_der, encoded, signature = read_length_prefixed(payload, 5)
        if form != FORM:
            message = "another form"
            raise WrongShape(message)
        check_shown(tbs_sha256, spki_der, signature)
        reports = read_document(Reports, encoded)
        if len({report.id for report in reports.items}) < len(reports.items):
            message = "a command is reported twice"
            raise WrongShape(message)
        return cls(tbs_sha256, spki_der, reports, signature)


def signed_text(tbs_sha256: bytes, csr_sha256: bytes, request_id: str, reports: Reports) -> bytes:
    """Return what the current certificate's key signs; the label keeps its other signatures from counting."""
    return LABEL + length_prefixed(tbs_sha256, csr_sha256, request_id.encode(), reports.write())


def sign_command(jws: JwsSigner, command: Command) -> bytes:
    """Return the signed command: the same bytes each time, for the same key."""
    return jws.sign(command.write(), TYP_COMMAND)


def read_command(token: bytes, signing_public: bytes) -> Command:
    """Return the command of a token; whether it is for this node, and in time, is for the caller to see.

    Raises:
        SignatureBroken: that key (32 raw bytes of Ed25519) did not sign it as a command.
        SchemaError: authentic, but no command that this release knows.
    """
    command = read_document(Command, verify(token, signing_public, typ=TYP_COMMAND, kid=None))
    if len(unb64(command.payload)) > MAX_PAYLOAD_BYTES:
        message = "payload"
        raise WrongShape(message)
    return command
