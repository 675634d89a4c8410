"""The flood of the fault suite against one gateway: every malformation is answered as what it is, and counted once."""

from collections import Counter
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric import ec

from tests.faults.judge.findings import Findings
from tests.faults.judge.floods import check_flood
from tests.faults.judge.ledger import Flood
from tests.faults.load.envelope import Machine
from tests.faults.load.malformed import MALFORMATIONS, RARE, Bases
from tests.faults.load.pouring import Plan, expected, pour
from tests.support.gateway import make_csr, make_request, nowhere, serving
from watchword.streams.gateway import GatewayOptions
from watchword.streams.gateway.metrics import REJECTED

_CSR = make_csr()
_WEAK = Machine(ec.generate_private_key(ec.SECP521R1())).csr
_BASES = Bases(
    good=(make_request(_CSR),),
    bad_csr={
        "csr-malformed": make_request(b"\x30\x03" + bytes(30)),
        "csr-signature": make_request(_CSR[:-1] + bytes([_CSR[-1] ^ 1])),
        "weak-key": make_request(_WEAK),
    },
)
_EACH = len(MALFORMATIONS) * 10 - 9 * len(RARE)
"""So many that each kind comes."""


def _counted() -> Counter[str]:
    found: Counter[str] = Counter()
    for metric in REJECTED.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                found[sample.labels["reason"]] += int(sample.value)
    return found


def _impatient(options: GatewayOptions) -> GatewayOptions:
    timings = replace(options.timings, head_s=1.0, body_s=1.0)
    return replace(options, timings=timings, limits=replace(options.limits, waiters=4))


async def test_every_malformation_is_answered_as_what_it_is_and_counted_once() -> None:
    """What a gateway says of a flood is all that an operator has to go by."""
    before = _counted()
    async with serving(nowhere(), adjust=_impatient) as served:
        plan = Plan([served.gateway.port], _BASES, junk=_EACH, slow=6, pollers=12, readable=())
        poured = await pour(plan)
    flood = Flood(
        answers=poured.answers,
        expected={kind: expected(kind) for kind in poured.answers},
        counted=_counted() - before,
        without_a_time=poured.without_a_time,
        grown_bytes={},
        most_bytes=0,
    )
    findings = Findings()
    check_flood(flood, findings)
    assert findings.lines() == []
    assert poured.answers.keys() >= MALFORMATIONS.keys()
    assert poured.polls["too-many-waiters"] + poured.polls["busy"] > 0
