"""`renewal`: what a node's new certificate costs, against the crypto that it cannot do without.

Measured as the rows of attestors are. The floor is that of a join and the current certificate's signature.
"""

from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from tests.benchmarks.bench import Bench
from tests.benchmarks.floor import bare_join
from tests.benchmarks.results import Measure
from tests.benchmarks.rows.attestors import Cpu, judged_row, together
from tests.support.crypto import spki_of
from tests.support.joins import Machine, join_bench
from tests.support.renewals import Node


async def renewal(bench: Bench) -> list[Measure]:
    """Measure nodes that have joined and renew once."""
    async with bench.deployed() as deployed:
        dsn = bench.servers.postgres.dsn(deployed.database)
        async with join_bench(dsn) as desk:
            token = await desk.token(uses=10**6)

            async def rounds(machines: Sequence[Machine], cpu: Cpu) -> int:
                before = [desk.machine() for _ in machines]
                answers = await desk.ask(*[m.request(token.payload) for m in before])
                nodes = [Node.of(m, answer) for m, answer in zip(before, answers, strict=True)]
                pairs = zip(nodes, machines, strict=True)
                told = await cpu.ask([node.renewal(machine) for node, machine in pairs])
                return sum(answer["outcome"] == "joined" for answer in told)

            floor = together(bare_join(), _bare_signature())
            return await judged_row("renewal", bench, desk, rounds, floor, at_most=1.6)


def _bare_signature() -> Callable[[], object]:
    """Return what a renewal adds: a key is loaded, and its signature checked."""
    key, text = ec.generate_private_key(ec.SECP256R1()), b"t" * 150
    spki, signature = spki_of(key), key.sign(text, ec.ECDSA(SHA256()))

    def once() -> None:
        public = load_der_public_key(spki)
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise TypeError
        public.verify(signature, text, ec.ECDSA(SHA256()))

    return once
