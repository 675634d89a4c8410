"""What the crypto of one join costs, against the bare operations of `cryptography`."""

import time
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.benchmarks.floor import bare_join
from tests.support.crypto import DAY, NODE_ID, NOW, csr_of
from watchword.handlers.crypto import hpke
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.csr import check_possession, load_csr
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.crypto.profile import CertificateOrder
from watchword.handlers.crypto.responses import Answers, Question

pytestmark = pytest.mark.benchmark

BOUND = 1.8
_ROUNDS, _REPEATS, _BATCH = 7, 5, 64
INFO = b"i" * 200
CSR = csr_of(ec.generate_private_key(ec.SECP256R1()))


def cpu_us(work: Callable[[], object], *, each: int = 1) -> float:
    """Return the CPU time of one call in microseconds: the best of several rounds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        before = time.process_time()
        for _ in range(_REPEATS * _BATCH // each):
            work()
        best = min(best, (time.process_time() - before) / (_REPEATS * _BATCH))
    return best * 1e6


def ours(sealed: bytes, key: hpke.DecryptionKey) -> Callable[[], object]:
    """Return a batch of 64 joins by our own functions, with the signer in the same process."""
    ca_key, ca = create_ca("fleet.example", now=NOW)
    authority = Authority(ca_key, [ca], trust_domain="fleet.example")
    answers = Answers(JwsSigner("s-1", Ed25519PrivateKey.generate()))

    def batch() -> None:
        orders: list[CertificateOrder] = []
        for _ in range(_BATCH):
            csr = load_csr(CSR)
            check_possession(csr)
            key.open(sealed, INFO)
            orders.append(CertificateOrder(csr.spki_der, "acme", NODE_ID, None, NOW, NOW + DAY))
        for issued in authority.issue(orders):
            answers.joined(
                Question(b"r" * 32, NODE_ID, b"c" * 32),
                NOW,
                node_id=NODE_ID,
                tenant="acme",
                pool="default",
                site=None,
                role="node",
                chain=(issued.der, *authority.chain),
                allowed_kinds=None,
                renew_after=NOW + DAY / 2,
            )

    return batch


def test_a_joins_crypto_costs_little_more_than_its_bare_operations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Workers are bought by the join; what is not arithmetic is waste."""
    private = X25519PrivateKey.generate()
    key = hpke.DecryptionKey(private.private_bytes_raw())
    sealed = hpke.seal(key.public, bytes(200), INFO)

    floor = cpu_us(bare_join())
    join = cpu_us(ours(sealed, key), each=_BATCH)

    with capsys.disabled():
        print(f"\nfloor {floor:.0f} µs, join {join:.0f} µs: {join / floor:.2f} times")  # noqa: T201
    assert join <= BOUND * floor
