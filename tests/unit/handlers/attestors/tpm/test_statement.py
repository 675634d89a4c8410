"""A key statement at renewal: the TPM that the statement names certified this very key, for this very request."""

from dataclasses import replace
from hashlib import sha256

import pytest

from tests.support.tpm import RESTRICTED_SIGNING, SIGNING, SoftTpm, area, name_of, new_key
from watchword.handlers.attestors.tpm.evidence import Certification
from watchword.handlers.attestors.tpm.statement import (
    KeyProof,
    StatementUnproved,
    check_statement,
    qualifying_text,
)

TEXT = b"watchword renew v1, the certificate, the CSR, the request"


class _Renewal:
    """A node with an attestation key and a new key, and what its TPM says of it."""

    def __init__(self, ak: str = "p256") -> None:
        self.tpm = SoftTpm(ak=ak)
        self.key = new_key("p256")
        self.uri = f"urn:bc:tpm-ak:{sha256(name_of(self.tpm.ak)).hexdigest()}"

    def proof(self, *, text: bytes = TEXT, attributes: int = SIGNING) -> KeyProof:
        public = area(self.key, attributes)
        attest = self.tpm.certify(qualifying_text(text), name_of(public))
        return KeyProof(self.tpm.ak, Certification(public, attest, self.tpm.sign(attest)))

    def check(self, proof: bytes, *, uri: str | None = None, text: bytes = TEXT) -> None:
        check_statement(self.uri if uri is None else uri, proof, text, self.key.public_key())


@pytest.mark.parametrize("ak", ["p256", "rsa2048"])
def test_new_key_of_the_same_tpm_is_proved(ak: str) -> None:
    """The statement goes on with the node, though its key is another one."""
    renewal = _Renewal(ak)
    renewal.check(renewal.proof().encode())


def test_proof_is_for_one_text_one_key_and_one_attestation_key() -> None:
    """A recorded proof, a stranger's TPM, a key from outside: none of them is this node's."""
    renewal, other = _Renewal(), _Renewal()
    good = renewal.proof()
    for proof in (
        renewal.proof(text=b"yesterday's request"),
        renewal.proof(attributes=SIGNING & ~0x02),
        other.proof(),
        replace(good, said=other.proof().said),
        replace(good, ak=area(renewal.tpm.ak_key, SIGNING, scheme="ecdsa")),
        replace(good, ak=area(renewal.tpm.ak_key, RESTRICTED_SIGNING | 1 << 10, scheme="ecdsa")),
    ):
        with pytest.raises(StatementUnproved):
            renewal.check(proof.encode())
    with pytest.raises(StatementUnproved):
        renewal.check(good.encode(), uri=other.uri)
    with pytest.raises(StatementUnproved):
        renewal.check(good.encode(), uri="urn:bc:other")


def test_every_cut_and_every_changed_byte_of_what_counts_is_refused() -> None:
    """The proof comes from a machine, and nothing of it is trusted before it holds."""
    renewal = _Renewal()
    data = renewal.proof().encode()
    for size in range(len(data)):
        with pytest.raises(StatementUnproved):
            renewal.check(data[:size])
    for at in range(len(data)):
        changed = data[:at] + bytes((data[at] ^ 0x01,)) + data[at + 1 :]
        with pytest.raises(StatementUnproved):
            renewal.check(changed)
