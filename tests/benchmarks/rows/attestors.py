"""`image`, `discovery` and `x509pop`: what a join by each costs, against the crypto that it cannot do without.

Judged in this process, in batches as a worker's, with a real PostgreSQL and without Kafka: what is
measured is the CPU time of unsealing, verifying, settling, signing and answering. Each row has a floor
of its own: the operations of the floor of joins, and those that this kind of evidence adds, by
`cryptography` alone.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.benchmarks.bench import Bench, WrongResult
from tests.benchmarks.floor import bare_join
from tests.benchmarks.results import Measure, at_most_times
from tests.support.anchors import SiteAgent
from tests.support.anchors import image as add_image
from tests.support.certificates import OperatorCa
from tests.support.crypto import TRUST_DOMAIN, csr_of
from tests.support.joins import Bench as Desk
from tests.support.joins import Machine, join_bench
from tests.support.proving import first_request, next_request
from watchword.handlers.attestors.discovery.verifier import DiscoveryAttestor
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.attestors.x509pop.config import Config, Rule
from watchword.handlers.attestors.x509pop.prover import FileKey, X509PopProver
from watchword.handlers.attestors.x509pop.verifier import X509PopAttestor
from watchword.schemas.ids import TenantId
from watchword.streams.cycles import spare_the_collector

MOST = 2_000
"""Joins of a row: their evidence is made one by one."""

_BATCH = 64
_FLOOR_TIMES = 200

Rounds = Callable[[Sequence[Machine], "Cpu"], Awaitable[int]]
"""Takes machines through all rounds of a join; returns how many joined."""


class Cpu:
    """Judges, and counts the CPU time that it takes."""

    def __init__(self, desk: Desk) -> None:
        """Have spent nothing."""
        self._desk = desk
        self.seconds = 0.0

    async def ask(self, requests: Sequence[bytes]) -> list[dict[str, object]]:
        """Return the answers to a batch."""
        incoming = [self._desk.incoming(request) for request in requests]
        before = time.process_time()
        answers = await self._desk.engine.judge(incoming)
        self.seconds += time.process_time() - before
        return [self._desk.read(answer) for answer in answers]


async def image(bench: Bench) -> list[Measure]:
    """Measure machines of one image that needs no second fact, and warns of it each time."""
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet)
    async with bench.deployed() as deployed:
        dsn = bench.servers.postgres.dsn(deployed.database)
        async with join_bench(dsn, attestors=[ImageAttestor()]) as desk:
            await desk.place("acme", "web", "berlin")
            made = await add_image(desk, second_fact="unsafe_single_factor")

            async def rounds(machines: Sequence[Machine], cpu: Cpu) -> int:
                return count_joined(
                    await cpu.ask([await first_request(m, made.prover) for m in machines])
                )

            return await judged_row("image", bench, desk, rounds, bare_join())


async def discovery(bench: Bench) -> list[Measure]:
    """Measure ramdisks of known machines, each re-keyed once."""
    async with bench.deployed() as deployed:
        dsn = bench.servers.postgres.dsn(deployed.database)
        async with join_bench(
            dsn, attestors=[DiscoveryAttestor()], waiting_per_tenant=10**6
        ) as desk:
            agent = await SiteAgent(desk).registered()
            now = await desk.one("SELECT watchword.now()")

            async def asserted(machine: Machine, number: int) -> bytes:
                mac = f"3cecef{number:06x}"
                said = await agent.asserted(
                    machine,
                    macs=[mac],
                    product_uuid=f"4c4c4544-0043-3510-8052-{number:012x}",
                    expires_at=now + timedelta(minutes=14),
                )
                return machine.request(said, attestor="discovery", role="ramdisk")

            async def rounds(machines: Sequence[Machine], cpu: Cpu) -> int:
                known = [desk.machine() for _ in machines]
                numbers = [int.from_bytes(m.csr[-3:], "big") for m in machines]
                first = [await asserted(m, n) for m, n in zip(known, numbers, strict=True)]
                await desk.ask(*first)
                await desk.fetch(
                    "UPDATE join_requests SET state = 'approved', version = version + 1"
                )
                await desk.ask(*[await asserted(m, n) for m, n in zip(known, numbers, strict=True)])
                again = [await asserted(m, n) for m, n in zip(machines, numbers, strict=True)]
                return count_joined(await cpu.ask(again))

            return await judged_row(
                "discovery", bench, desk, rounds, together(bare_join(), _bare_assertion())
            )


async def x509pop(bench: Bench) -> list[Measure]:
    """Measure machines with P-256 certificates of one CA, over both rounds."""
    ca = OperatorCa()
    rule = Rule((ca.certificate,), {"commonName": "*"}, TenantId("acme"), "web")
    async with bench.deployed() as deployed:
        dsn = bench.servers.postgres.dsn(deployed.database)
        attestor = X509PopAttestor(Config(TRUST_DOMAIN, (rule,)))
        async with join_bench(dsn, attestors=[attestor]) as desk:
            await desk.place("acme", "web")

            async def rounds(machines: Sequence[Machine], cpu: Cpu) -> int:
                provers = [_certified(ca) for _ in machines]
                pairs = list(zip(machines, provers, strict=True))
                asked = await cpu.ask([await first_request(m, p) for m, p in pairs])
                answers = [
                    await next_request(machine, prover, challenge)
                    for (machine, prover), challenge in zip(pairs, asked, strict=True)
                ]
                return count_joined(await cpu.ask(answers))

            floor = together(bare_join(), one_round(), bare_state(), _bare_possession(ca))
            return await judged_row("x509pop", bench, desk, rounds, floor)


def _certified(ca: OperatorCa) -> X509PopProver:
    held = ca.give()
    pem, key = held.pem, held.key_pem
    return X509PopProver(lambda: pem, FileKey(lambda: key), TRUST_DOMAIN)


def count_joined(answers: Sequence[dict[str, object]]) -> int:
    """Return how many of the answers are joins."""
    return sum(answer["outcome"] == "joined" for answer in answers)


async def judged_row(
    name: str,
    bench: Bench,
    desk: Desk,
    rounds: Rounds,
    floor: Callable[[], object],
    *,
    at_most: float = 1.8,
) -> list[Measure]:
    """Return what a row's machines cost in this process; `at_most` is the target over the row's floor."""
    await rounds([desk.machine() for _ in range(_BATCH)], Cpu(desk))  # statements are prepared
    spare_the_collector()  # as a started worker does; floor and service alike
    cpu, floors, count, joined = Cpu(desk), [_cpu_us(floor)], 0, 0
    while count < min(bench.options.joins, MOST):
        joined += await rounds([desk.machine() for _ in range(_BATCH)], cpu)
        count += _BATCH
        floors.append(_cpu_us(floor))
    if joined != count:
        message = f"{joined} of {count} joined"
        raise WrongResult(message)
    spent = cpu.seconds / count * 1e6
    least = sum(floors) / len(floors)
    return [Measure(name, "judging_cpu_us_per_join", spent, "µs", least, at_most_times(at_most))]


def _cpu_us(once: Callable[[], object]) -> float:
    before = time.process_time()
    for _ in range(_FLOOR_TIMES):
        once()
    return (time.process_time() - before) / _FLOOR_TIMES * 1e6


def together(*parts: Callable[[], object]) -> Callable[[], object]:
    """Return one operation that does all of these."""

    def once() -> None:
        for part in parts:
            part()

    return once


def one_round() -> Callable[[], object]:
    """Return what a round costs that ends in no certificate: the seal, the CSR, the answer's signature."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    decryption, signing = X25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    info, answer = b"i" * 200, b"a" * 1500
    sealed = suite.encrypt(b"p" * 700, decryption.public_key(), info=info)
    csr_der = csr_of(ec.generate_private_key(ec.SECP256R1()))

    def once() -> None:
        suite.decrypt(sealed, decryption, info=info)
        if not x509.load_der_x509_csr(csr_der).is_signature_valid:
            raise ValueError
        signing.sign(answer)

    return once


def bare_state() -> Callable[[], object]:
    """Return what a machine's state costs between two rounds: AES-256-GCM under a key of its own, sealed and opened."""
    key, salt, data, bound = bytes(32), b"s" * 32, b"d" * 128, b"b" * 120

    def cipher() -> AESGCM:
        return AESGCM(HKDF(SHA256(), 32, salt, b"state").derive(key))

    sealed = cipher().encrypt(bytes(12), data, bound)

    def once() -> None:
        cipher().encrypt(bytes(12), data, bound)
        cipher().decrypt(bytes(12), sealed, bound)

    return once


def _bare_assertion() -> Callable[[], object]:
    """Return what an assertion adds: Ed25519."""
    key = Ed25519PrivateKey.generate()
    public, text = key.public_key().public_bytes_raw(), b"a" * 500
    signature = key.sign(text)

    def once() -> None:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)

    return once


def _bare_possession(ca: OperatorCa) -> Callable[[], object]:
    """Return what two rounds with a certificate add: its CA's signature in both, its own in one."""
    held = ca.give()
    key, der, text = held.key, held.der, b"t" * 150
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError
    public, signature = key.public_key(), key.sign(text, ec.ECDSA(SHA256()))

    def once() -> None:
        for _ in range(2):
            certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(ca.certificate)
            certificate.public_key()
        public.verify(signature, text, ec.ECDSA(SHA256()))

    return once
