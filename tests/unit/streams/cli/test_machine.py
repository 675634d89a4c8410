"""What a machine can show is said completely, and nothing of another attestor's."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.agents import Machine, Service, bootstrapped
from tests.support.certificates import OperatorCa, pem_of_key
from tests.support.crypto import TRUST_DOMAIN
from watchword.handlers.attestors.image.evidence import new_image, parse_image
from watchword.handlers.attestors.x509pop.evidence import PossessionEvidence, signed_text
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import NoEvidence
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.errors import NotBootstrapped
from watchword.streams.agent.provers import own_certificate_prover
from watchword.streams.cli.machine import Joining, prover_of

CSR = b"c" * 32
NOWHERE = Path("/nonexistent/file")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(Joining(), id="a token from nowhere"),
        pytest.param(Joining(token_file=NOWHERE, token_stdin=True), id="a token from two places"),
        pytest.param(Joining(attestor="image"), id="no secret"),
        pytest.param(Joining(attestor="image", token_file=NOWHERE), id="another attestor's file"),
        pytest.param(
            Joining(attestor="image", image_file=NOWHERE, assertion_file=NOWHERE),
            id="more than it takes",
        ),
        pytest.param(Joining(attestor="x509pop", certificate_file=NOWHERE), id="no key"),
        pytest.param(
            Joining(attestor="x509pop", key_file=NOWHERE, own_certificate=True), id="whose key?"
        ),
        pytest.param(Joining(attestor="discovery", token_stdin=True), id="a token is no assertion"),
    ],
)
def test_half_of_what_is_needed_is_a_usage_error(options: Joining) -> None:
    """An agent that starts with a typo waits for ever, and shows a secret that nobody asked for."""
    with pytest.raises(BadArgument, match=f"^{options.attestor} needs --"):
        prover_of(options, AgentClock())


def test_a_ramdisk_is_what_discovery_is_for() -> None:
    """Any other role would be refused without a word."""
    assert Joining(attestor="discovery").as_role == "ramdisk"
    assert Joining(attestor="discovery", role="node").as_role == "node"
    assert Joining().as_role == "node"


async def test_the_image_s_secret_is_read_when_it_is_shown(tmp_path: Path) -> None:
    """A first boot writes it later than the agent starts."""
    file = tmp_path / "secret"
    prover = prover_of(Joining(attestor="image", image_file=file), AgentClock())
    with pytest.raises(NoEvidence):
        await prover.evidence(CSR, "node")
    _, text, _ = new_image()
    file.write_text(text)
    assert await prover.evidence(CSR, "node") == parse_image(text).encode()


async def test_a_certificate_is_read_when_it_is_shown(tmp_path: Path) -> None:
    """Whoever renews the certificate does not have to restart the agent; the trust domain comes with the keys."""
    state = tmp_path / "state"
    certificates, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    options = Joining(attestor="x509pop", certificate_file=certificates, key_file=key, state=state)
    with pytest.raises(NotBootstrapped):
        prover_of(options, AgentClock())
    bootstrapped(state, Service())
    prover = prover_of(options, AgentClock())
    with pytest.raises(NoEvidence, match=r"chain\.pem"):
        await prover.evidence(CSR, "node")

    held = OperatorCa().give()
    certificates.write_bytes(held.pem)
    key.write_bytes(pem_of_key(held.key))
    first = PossessionEvidence.decode(await prover.evidence(CSR, "node"))
    second = PossessionEvidence.decode(await prover.answer(b"n" * 32, CSR, "node"))

    assert (first.signature, first.leaf) == (b"", second.leaf)
    assert second.signature


async def test_a_node_shows_the_certificate_that_it_was_given(tmp_path: Path) -> None:
    """After a long time in a drawer that is all it has; its key never leaves the state directory."""
    machine = Machine(tmp_path / "state")
    identity = (await machine.join(machine.service.joined)).identity
    options = Joining(attestor="x509pop", own_certificate=True, state=tmp_path / "state")
    prover = prover_of(options, AgentClock())
    nonce = b"n" * 32
    shown = PossessionEvidence.decode(await prover.answer(nonce, CSR, "node"))

    leaf = x509.load_der_x509_certificate(shown.leaf)
    assert f"{leaf.serial_number:032x}" == identity.node.serial
    key = leaf.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    text = signed_text(TRUST_DOMAIN, "node", nonce, CSR)
    key.verify(shown.signature, text, ec.ECDSA(SHA256()))


async def test_a_machine_without_an_identity_has_none_to_show(tmp_path: Path) -> None:
    """It waits, and says why."""
    keystore = bootstrapped(tmp_path / "state", Service())
    with pytest.raises(NoEvidence, match="no certificate of its own"):
        await own_certificate_prover(keystore, TRUST_DOMAIN).evidence(CSR, "node")


async def test_a_file_that_is_no_certificate_is_said_at_once(tmp_path: Path) -> None:
    """Waiting would not make it one."""
    state = tmp_path / "state"
    bootstrapped(state, Service())
    file = tmp_path / "chain.pem"
    file.write_bytes(b"x" * 300_000)
    options = Joining(attestor="x509pop", certificate_file=file, key_file=file, state=state)
    with pytest.raises(BadArgument, match="longer than"):
        await prover_of(options, AgentClock()).evidence(CSR, "node")
    file.write_bytes(b"hello")
    with pytest.raises(BadArgument, match="no certificates"):
        await prover_of(options, AgentClock()).evidence(CSR, "node")
