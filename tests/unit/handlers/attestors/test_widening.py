"""Turning a check off can only widen what is taken: a switch for a check must not become a check."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.certificates import OperatorCa
from watchword.handlers.attestor import Admission
from watchword.handlers.attestors.x509pop.config import Rule
from watchword.handlers.join.expectations import meets
from watchword.handlers.join.policy import JoinPolicy, Limits
from watchword.schemas.ids import AttestorId, TenantId
from watchword.schemas.requests import Claims

pytestmark = pytest.mark.case("B65")

CA = OperatorCa()
LEAVES = [CA.give(name).certificate for name in ("a.web", "b.web", "a.db")]
PATTERNS = st.dictionaries(
    st.sampled_from(["commonName", "dns", "organization"]),
    st.sampled_from(["*", "*.web", "a.*", "c"]),
    min_size=2,
)
CLAIMS = st.builds(
    Claims,
    product_uuid=st.sampled_from([None, "u1", "U1", "u2"]),
    serial=st.sampled_from([None, "s1", "s2"]),
    macs=st.sampled_from([(), ("aa:bb:cc:dd:ee:ff",), ("AABB.CCDD.EEFF", "x")]),
)
EXPECTATIONS = st.dictionaries(
    st.sampled_from(["productUuid", "serial", "mac", "colour"]),
    st.sampled_from(["u1", "s1", "aabbccddeeff"]),
    min_size=1,
)
SOME = st.none() | st.frozensets(st.sampled_from(["acme", "web", "berlin", "diag.ping"]))
LIMITS = st.builds(
    Limits, tenants=SOME, pools=SOME, sites=SOME, kinds=SOME, unrestricted_kinds=st.booleans()
)
GRANTS = st.builds(
    Admission,
    tenant=st.sampled_from([TenantId("acme"), TenantId("globex")]),
    role=st.just("node"),
    pool=st.sampled_from(["web", "db"]),
    site=st.sampled_from([None, "berlin", "paris"]),
    allowed_kinds=st.sampled_from([None, (), ("diag.ping",), ("diag.ping", "disk.wipe")]),
)


def _without_one(said: Mapping[str, str]) -> list[dict[str, str]]:
    return [{n: v for n, v in said.items() if n != name} for name in said]


@given(match=PATTERNS, leaf=st.sampled_from(LEAVES))
def test_pattern_less_takes_no_certificate_less(match: dict[str, str], leaf: object) -> None:
    """Of what a rule takes with a pattern, nothing is lost without it, as long as one is left."""
    certificate = LEAVES[LEAVES.index(leaf)]  # type: ignore[arg-type]  # one of them
    rule = Rule((CA.certificate,), match, TenantId("acme"), "web")
    if rule.takes(certificate, "node"):
        for fewer in _without_one(match):
            assert replace(rule, match=fewer).takes(certificate, "node")


@given(expect=EXPECTATIONS, claims=CLAIMS)
def test_expectation_less_refuses_no_claims_more(expect: dict[str, str], claims: Claims) -> None:
    """The same for what a token or an image expects."""
    if meets(expect, claims):
        assert all(meets(fewer, claims) for fewer in _without_one(expect))


@given(limits=LIMITS, grant=GRANTS)
def test_limit_less_allows_no_grant_less(limits: Limits, grant: Admission) -> None:
    """The same for the limits of an attestor, each left out in turn."""
    attestor = AttestorId("image")

    def allows(these: Limits) -> bool:
        return JoinPolicy({attestor: these}).allows(attestor, grant)

    if allows(limits):
        wider = [
            replace(limits, tenants=None),
            replace(limits, pools=None),
            replace(limits, sites=None),
            replace(limits, kinds=None),
            replace(limits, unrestricted_kinds=True),
        ]
        assert all(allows(these) for these in wider)
