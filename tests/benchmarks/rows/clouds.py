"""`cloud-aws`, `cloud-gcp`, `cloud-azure`: what a join by a cloud's identity costs, against its crypto.

The floor of each is that of a join and one RSA-2048 signature, by which the cloud signs the document. The path
of Azure's signer is none of it: a signer is verified once, and not for each of its machines.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA256

from tests.benchmarks.bench import Bench
from tests.benchmarks.floor import bare_join
from tests.benchmarks.results import Measure
from tests.benchmarks.rows.attestors import Cpu, judged_row, together
from tests.support.cloud_desks import ACCOUNTS, Clouds, key_of
from tests.support.clouds import Cms
from tests.support.joins import Machine, join_bench
from tests.support.metadata import Aws, Azure, Google
from watchword.handlers.attestors.cloud_iid.binding import bound_audience, nonce_for
from watchword.handlers.attestors.cloud_iid.evidence import CloudEvidence
from watchword.handlers.attestors.cloud_iid.prover import Provider
from watchword.handlers.attestors.cloud_iid.verifier import CloudIidAttestor

_ACCOUNT = """
INSERT INTO cloud_accounts (provider, account, tenant, pool, role, approval, allowed_kinds, created_by)
VALUES ($1, $2, 'acme', 'web', 'node', false, '{}', 'bench')
"""


async def cloud_aws(bench: Bench) -> list[Measure]:
    """Measure instances of AWS, by RSA-2048."""
    return await _row(bench, "aws", _of_aws)


async def cloud_gcp(bench: Bench) -> list[Measure]:
    """Measure instances of Google."""
    return await _row(bench, "gcp", _of_google)


async def cloud_azure(bench: Bench) -> list[Measure]:
    """Measure machines of Azure, all with one signer, as those of a region have it."""
    return await _row(bench, "azure", _of_azure)


async def _row(
    bench: Bench, provider: Provider, evidence: Callable[[Clouds, bytes, int], CloudEvidence]
) -> list[Measure]:
    count = 0
    async with bench.deployed() as deployed:
        dsn = bench.servers.postgres.dsn(deployed.database)
        with TemporaryDirectory() as folder:
            clouds = Clouds.at(Path(folder))
            attestor = CloudIidAttestor(clouds.anchors())
        async with join_bench(dsn, attestors=[attestor]) as desk:
            await desk.place("acme", "web")
            await desk.fetch(_ACCOUNT, provider, ACCOUNTS[provider])

            async def rounds(machines: Sequence[Machine], cpu: Cpu) -> int:
                nonlocal count
                requests: list[bytes] = []
                for machine in machines:
                    count += 1
                    shown = evidence(clouds, sha256(machine.csr).digest(), count)
                    requests.append(machine.request(shown.encode(), attestor="cloud-iid"))
                return sum(answer["outcome"] == "joined" for answer in await cpu.ask(requests))

            floor = together(bare_join(), _bare_signature())
            return await judged_row(f"cloud-{provider}", bench, desk, rounds, floor)


def _of_aws(clouds: Clouds, _csr_sha256: bytes, number: int) -> CloudEvidence:
    document = Aws(clouds.aws, instance=f"i-{number:017x}", pending=datetime.now(UTC)).document()
    return CloudEvidence("aws", "rsa2048", b"", Cms(document, clouds.aws).make())


def _of_google(_clouds: Clouds, csr_sha256: bytes, number: int) -> CloudEvidence:
    instance = Google(key_of("k1"), instance=str(number))
    token = instance.token(bound_audience("watchword", csr_sha256), "full")
    return CloudEvidence("gcp", "token", b"", token)


def _of_azure(clouds: Clouds, csr_sha256: bytes, number: int) -> CloudEvidence:
    machine = f"b1310a36-d400-46f6-82cb-{number:012x}"
    document = Azure(clouds.azure, machine=machine).document(nonce_for(csr_sha256))
    signed = Cms(document, clouds.azure, attributes=False, certificates=(clouds.azure.der,)).make()
    return CloudEvidence("azure", "attested", b"", signed)


def _bare_signature() -> Callable[[], object]:
    """Return what a cloud's identity adds: RSA-2048 with SHA-256."""
    key, text = key_of("k1"), b"d" * 400
    public, signature = key.public_key(), key.sign(text, padding.PKCS1v15(), SHA256())

    def once() -> None:
        public.verify(signature, text, padding.PKCS1v15(), SHA256())

    return once
