"""A fast answer that is wrong must not count."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.benchmarks.observer import Expected, Findings, verified
from tests.support.crypto import TRUST_DOMAIN, csr_of, jws_signer, spki_of
from watchword.handlers.crypto.authority import Authority
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.profile import CertificateOrder
from watchword.handlers.crypto.responses import Answers, Question

NODES = [f"0190163d-8694-739b-aea5-96c26f8ad{n:03}" for n in range(10)]
NOW = datetime.now(UTC)
CA_KEY, CA = create_ca(TRUST_DOMAIN, now=NOW - timedelta(days=1))
AUTHORITY = Authority(CA_KEY, [CA], trust_domain=TRUST_DOMAIN)
JWS = jws_signer()
KEYS = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
CSRS = [csr_of(key) for key in KEYS]
REQUESTS = [json.dumps({"csr": base64.b64encode(csr).decode()}).encode() for csr in CSRS]


def joined(
    number: int, *, node: str = NODES[0], key: int | None = None, authority: Authority = AUTHORITY
) -> bytes:
    """Return the answer that one of the requests joined, perhaps with another's key."""
    spki = spki_of(KEYS[number if key is None else key])
    order = CertificateOrder(spki, "acme", node, None, NOW, NOW + timedelta(days=7))
    question = Question(sha256(REQUESTS[number]).digest(), "r", sha256(CSRS[number]).digest())
    return Answers(JWS).joined(
        question,
        NOW,
        node_id=node,
        tenant="acme",
        pool="web",
        site=None,
        role="node",
        chain=(authority.issue([order])[0].der,),
        allowed_kinds=None,
        renew_after=NOW,
    )


def findings(answers: Sequence[bytes]) -> Findings:
    """Return what the observer makes of answers that arrived one second after the other."""
    arrivals = [(float(at), answer) for at, answer in enumerate(answers)]
    return verified(arrivals, Expected(JWS.public, AUTHORITY.chain[0], REQUESTS))


def test_good_answers_count_with_the_time_of_their_arrival() -> None:
    found = findings([joined(0), joined(1, node=NODES[1]), joined(0)])
    assert (found.joined, found.repeated, found.faults) == (2, 1, [])
    assert found.arrived == {sha256(REQUESTS[0]).digest(): 0.0, sha256(REQUESTS[1]).digest(): 1.0}


def other_ca() -> Authority:
    key, certificate = create_ca(TRUST_DOMAIN, now=NOW - timedelta(days=1))
    return Authority(key, [certificate], trust_domain=TRUST_DOMAIN)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(joined(0, key=1), id="another machine's key"),
        pytest.param(joined(0, authority=other_ca()), id="another CA"),
        pytest.param(joined(0)[:-4] + b"AAAA", id="a broken signature"),
    ],
)
def test_a_wrong_answer_is_a_fault(answer: bytes) -> None:
    found = findings([answer])
    assert found.joined == 0
    assert len(found.faults) == 1


def test_one_node_for_two_machines_is_a_fault() -> None:
    found = findings([joined(0), joined(1)])
    assert found.joined == 1
    assert found.faults == ["ValueError: a node twice"]
