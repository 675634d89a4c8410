"""An agent whose node's key is in a TPM renews to a key in the same TPM, through whatever ends its process."""

from collections.abc import Generator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.agents import Crash, Machine, Reaction
from tests.support.swtpm import SoftwareTpm, made, needs_swtpm
from watchword.handlers.attestors.tpm.statement import KeyProof, check_statement, statement_of
from watchword.handlers.attestors.tpm.structures import read_public_2b
from watchword.handlers.crypto.keypolicy import load_public_key
from watchword.handlers.crypto.renewals import RenewalEvidence, holds, signed_text
from watchword.schemas.requests import Claims
from watchword.streams.agent.errors import StateUnusable
from watchword.streams.agent.identity import Identity
from watchword.streams.agent.joiner import JoinOptions
from watchword.streams.agent.progress import Reporter
from watchword.streams.agent.renewer import Renewer
from watchword.streams.agent.tpm.chip import TssChip
from watchword.streams.agent.tpm.node_key import is_in_tpm
from watchword.streams.agent.tpm.renewing import KeysInTpm
from watchword.streams.agent.trust import TrustKeeper

# A chip takes its time for an RSA key, and an emulated one the machine's.
pytestmark = pytest.mark.timeout(600)

DUE_S = 20 * 3600
"""The test's certificates live a day; after so long each is due, wherever its renewal was spread to."""


@pytest.fixture(scope="module")
def swtpm(tmp_path_factory: pytest.TempPathFactory) -> Generator[SoftwareTpm]:
    """Give a TPM that is on."""
    needs_swtpm()
    tpm = made(tmp_path_factory.mktemp("swtpm"))
    with tpm.running():
        yield tpm


@pytest.fixture
async def machine(tmp_path: Path, swtpm: SoftwareTpm) -> Machine:
    """Give a node whose key is in this TPM, when its certificate is due."""
    machine = Machine(tmp_path / "state")
    keys = KeysInTpm(TssChip(swtpm.tcti))
    options = JoinOptions(claims=Claims, key_in_tpm=keys.make)
    await machine.join(machine.service.joined, options=options)
    machine.wire.sent.clear()
    machine.time.pass_by(DUE_S)
    machine.service.now += timedelta(seconds=DUE_S)
    return machine


async def tend(machine: Machine, tpm: KeysInTpm | None, *reactions: Reaction) -> Identity | None:
    """Renew, or go on, as a process that has just started."""
    machine.wire.then(*reactions)
    pace = machine.time.pace
    trust = TrustKeeper(machine.keystore, machine.wire, pace=pace)
    with machine.keystore.locked():
        return await Renewer(
            machine.keystore,
            machine.wire,
            trust,
            key_kind="p256",
            reporter=Reporter(),
            pace=pace,
            tpm=tpm,
        ).tend()


def crash(_: bytes) -> None:
    raise Crash


async def test_renewal_has_the_next_key_certified_for_this_request(
    machine: Machine, swtpm: SoftwareTpm
) -> None:
    """A key in a TPM that were followed by one in a file would be a downgrade that nobody sees."""
    before = machine.keystore.identity()
    assert before is not None
    old = x509.load_pem_x509_certificate(before.certificate.read_bytes())
    keys = KeysInTpm(TssChip(swtpm.tcti))
    with pytest.raises(Crash):
        await tend(machine, keys, crash)
    after = await tend(machine, KeysInTpm(TssChip(swtpm.tcti)), machine.service.joined)

    assert after is not None
    assert is_in_tpm(after.key.read_bytes())
    assert after.key.read_bytes() != before.key.read_bytes()
    # The key that was begun with, and no second one.
    assert len({read_csr(machine, request) for request in machine.wire.sent}) == 1
    read, csr, payload, _ = machine.service.open(machine.wire.sent[-1])
    shown = RenewalEvidence.decode(payload)
    assert shown.tbs_sha256 == sha256(old.tbs_certificate_bytes).digest()
    text = signed_text(shown.tbs_sha256, csr.sha256, read.request_id)
    assert holds(load_public_key(shown.spki_der), shown.signature, text)
    assert shown.proof is not None
    statement = statement_of(read_public_2b(KeyProof.decode(shown.proof).ak))
    check_statement(statement, shown.proof, text, csr.public_key)


async def test_agent_that_was_not_told_of_the_chip_makes_no_key_elsewhere(machine: Machine) -> None:
    """It says what it needs, and the certificate goes on to its end."""
    with pytest.raises(StateUnusable, match="--attestor tpm"):
        await tend(machine, None)
    assert machine.keystore.renewal() is None
    assert machine.wire.sent == []


def read_csr(machine: Machine, request: bytes) -> bytes:
    """Return the CSR of a request."""
    _, csr, _, _ = machine.service.open(request)
    return csr.der
