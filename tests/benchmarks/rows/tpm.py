"""`tpm`: what a join by an enrolled TPM costs over both rounds, against the crypto that it cannot do without.

As the other attestors' rows: judged in this process, in batches as a worker's, with a real PostgreSQL. The TPMs are
software, with P-256 keys, and their own work is not measured. The policy has values of six PCRs.
"""

import hmac
from collections.abc import Callable, Sequence
from hashlib import sha256

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.hashes import SHA256

from tests.benchmarks.bench import Bench
from tests.benchmarks.floor import bare_join
from tests.benchmarks.results import Measure
from tests.benchmarks.rows.attestors import (
    Cpu,
    bare_state,
    count_joined,
    judged_row,
    one_round,
    together,
)
from tests.support.joins import Machine, join_bench
from tests.support.proving import first_request, next_request
from tests.support.tpm import SoftProver, SoftTpm, enrol, set_policy
from watchword.handlers.attestors.tpm.config import Config
from watchword.handlers.attestors.tpm.endorsement import Anchors
from watchword.handlers.attestors.tpm.verifier import TpmAttestor

_PCRS = [0, 1, 2, 3, 4, 7]


async def tpm(bench: Bench) -> list[Measure]:
    """Measure enrolled TPMs with P-256 keys, over both rounds."""
    policy = {
        "pcrs": _PCRS,
        "banks": ["sha256"],
        "log": "ignored",
        "values": {"sha256": {str(n): ["11" * 32] for n in _PCRS}},
    }
    async with bench.deployed() as deployed:
        dsn = bench.servers.postgres.dsn(deployed.database)
        async with join_bench(dsn, attestors=[TpmAttestor(Config(Anchors({})))]) as desk:
            await desk.place("acme", "web")
            await set_policy(desk, policy)

            async def rounds(machines: Sequence[Machine], cpu: Cpu) -> int:
                provers = [SoftProver(SoftTpm()) for _ in machines]
                for prover in provers:
                    await enrol(desk, prover.tpm)
                pairs = list(zip(machines, provers, strict=True))
                asked = await cpu.ask([await first_request(m, p) for m, p in pairs])
                answers = [
                    await next_request(machine, prover, challenge)
                    for (machine, prover), challenge in zip(pairs, asked, strict=True)
                ]
                return count_joined(await cpu.ask(answers))

            floor = together(
                bare_join(),
                one_round(),
                bare_state(),
                _bare_keys(),
                _bare_credential(),
                _bare_quote(),
            )
            return await judged_row("tpm", bench, desk, rounds, floor)


def _numbers() -> ec.EllipticCurvePublicNumbers:
    return ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()


def _bare_keys() -> Callable[[], object]:
    """Return what two keys cost that come as coordinates, and come again in the second round."""
    ek, ak = _numbers(), _numbers()

    def once() -> None:
        for _ in range(2):
            ek.public_key()
            ak.public_key()

    return once


def _bare_credential() -> Callable[[], object]:
    """Return what TPM2_MakeCredential to a P-256 key costs: an ephemeral key, ECDH, and what is derived of it."""
    key = _numbers().public_key()

    def once() -> None:
        ephemeral = ec.generate_private_key(ec.SECP256R1())
        seed = sha256(ephemeral.exchange(ec.ECDH(), key)).digest()
        ephemeral.public_key().public_numbers()
        storage = hmac.digest(seed, b"STORAGE", "sha256")[:16]
        encryptor = Cipher(AES(storage), CFB(bytes(16))).encryptor()
        hidden = encryptor.update(bytes(34)) + encryptor.finalize()
        hmac.digest(hmac.digest(seed, b"INTEGRITY", "sha256"), hidden, "sha256")

    return once


def _bare_quote() -> Callable[[], object]:
    """Return what a quote costs: ECDSA over it, and a hash over its values."""
    key, text = ec.generate_private_key(ec.SECP256R1()), b"q" * 145
    public, signature = key.public_key(), key.sign(text, ec.ECDSA(SHA256()))

    def once() -> None:
        public.verify(signature, text, ec.ECDSA(SHA256()))
        sha256(bytes(32 * len(_PCRS))).digest()

    return once
