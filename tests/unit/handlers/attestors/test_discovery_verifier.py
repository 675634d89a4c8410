"""The verdict on a site agent's word: each fact about key, assertion and machine decides, without a server."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fuzz.targets import run
from tests.support.contexts import Desk
from watchword.handlers.anchors import DiscoverySite
from watchword.handlers.attestor import (
    Admission,
    Approval,
    Deferral,
    Evidence,
    Node,
    Subject,
)
from watchword.handlers.attestors.discovery.evidence import (
    MAX_ASSERTION_BYTES,
    TYP,
    sign_assertion,
)
from watchword.handlers.attestors.discovery.reasons import REASONS
from watchword.handlers.attestors.discovery.verifier import KINDS, DiscoveryAttestor
from watchword.handlers.crypto.jws import JwsSigner
from watchword.handlers.errors import Refused
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.ids import AttestorId, NodeId, TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

KEY = JwsSigner("k1", Ed25519PrivateKey.from_private_bytes(bytes(32)))
PRODUCT = "4c4c4544-0043-3510-8052-b4c04f4e3332"
MACS = ("3cecef000001", "3cecef000002")
LOCAL = "02005e000001"
NAMES = (
    Subject("machine", f"acme/uuid:{PRODUCT}"),
    Subject("machine", "acme/mac:3cecef000001"),
    Subject("machine", "acme/mac:3cecef000002"),
)
SITE = DiscoverySite(
    kid="k1",
    public_key=KEY.public,
    tenant=TenantId("acme"),
    site="berlin",
    pool="metal",
    approval="unknown-machines",
    allowed_kinds=("diag.*", "agent.update", "disk.wipe"),
    expires_at=None,
    revoked=False,
)
GRANT = Admission(
    tenant=TenantId("acme"),
    role="ramdisk",
    pool="metal",
    site="berlin",
    bind=NAMES[0].digest,
    allowed_kinds=("diag.*", "disk.wipe"),
    subjects=(*NAMES, Subject("site-key", "k1")),
)
RAMDISK = NodeId(UUID(int=50))


def node(number: int = 50, **changes: Any) -> Node:  # noqa: ANN401 - any field
    """Return a living ramdisk of the site, read anew: no word of it is the same object as ours."""
    made = Node(
        id=NodeId(UUID(int=number)),
        tenant=TenantId("".join("acme")),
        pool="metal",
        site="".join("berlin"),
        role="".join("ramdisk"),  # type: ignore[arg-type]
        state="active",
        attestor=AttestorId("discovery"),
        node_key_uri=None,
        hardware_key=None,
    )
    return replace(made, **changes)


def _desk() -> Desk:
    """Return a desk at a whole second: assertions say milliseconds, and limits are met to the last of them."""
    made = Desk("discovery", "ramdisk")
    made.now = made.now.replace(microsecond=0)
    return made


@dataclass
class Boot:
    """A ramdisk that has booted, and the desk that it is judged at."""

    site: DiscoverySite | None = SITE
    desk: Desk = field(default_factory=_desk)
    macs: Sequence[str] = MACS
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    payload: bytes | None = None
    uses: list[tuple[bytes, Any]] = field(default_factory=list[tuple[bytes, Any]])

    def asserted(self) -> bytes:
        said: dict[str, Any] = {
            "site": "berlin",
            "csr_sha256": self.desk.csr.sha256,
            "macs": self.macs,
            "product_uuid": PRODUCT.upper(),
            "bmc": "10.0.0.7",
            "expires_at": self.desk.now + timedelta(minutes=5),
        }
        return sign_assertion(KEY, **{**said, **self.said})

    def verdict(self) -> Admission | Deferral:
        if self.site is not None:
            approval = "".join(self.site.approval)
            self.desk.facts.sites[self.site.kid] = replace(self.site, approval=approval)
        self.payload = self.payload or self.asserted()
        context = self.desk.context()
        evidence = Evidence(UnverifiedPayload(self.payload), Claims())
        found = run(DiscoveryAttestor().verify(evidence, context))
        self.uses = context.staged.uses
        assert not context.staged.spends
        return found

    def refusal(self) -> Refused:
        with pytest.raises(Refused) as caught:
            self.verdict()
        assert caught.value.attestor == "discovery"
        return caught.value

    def nonce(self) -> bytes:
        assert self.payload is not None
        body = self.payload.split(b".")[1]
        said = json.loads(urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
        return bytes.fromhex(said["nonce"])

    def knows(self, *nodes: tuple[Node, Sequence[Subject]]) -> "Boot":
        """Have these nodes proven these names before; ids are read anew from each table."""
        for one, names in nodes:
            self.desk.facts.nodes_by_id[one.id] = one
            for name in names:
                ids = self.desk.facts.subjects.setdefault(name, [])
                ids.append(NodeId(UUID(int=one.id.int)))
        return self

    def bound(self, by: Subject = NAMES[0], number: int = 50) -> "Boot":
        """Have a node bound by a name."""
        self.desk.facts.bound[by.digest] = NodeId(UUID(int=number))
        return self


def known(names: Sequence[Subject] = NAMES, **changes: Any) -> Boot:  # noqa: ANN401 - any field
    """Return a machine whose ramdisk has been here, with these names of it."""
    return Boot().knows((node(**changes), names)).bound()


def test_known_machine_is_rekeyed_in_its_place_and_its_assertion_used_up() -> None:
    """Tenant, pool, site and kinds are the key's, and never the machine's; a nonce is kept for an hour and a minute longer than it is good."""
    one = known()
    assert one.verdict() == replace(GRANT, node_id=RAMDISK)
    nonce = sha256(length_prefixed(b"k1", one.nonce())).digest()
    kept = timedelta(minutes=5) + timedelta(minutes=1) + timedelta(hours=1)
    assert one.uses == [(nonce, one.desk.now + kept)]


def test_what_is_published_of_the_attestor_is_what_it_was_released_with() -> None:
    """Its id stands in tables and refusals; what a ramdisk may ever be told is a promise to whoever boots one."""
    attestor = DiscoveryAttestor()
    assert (attestor.id, attestor.version) == ("discovery", "1")
    assert attestor.roles == {"ramdisk"}
    assert attestor.reasons is REASONS
    assert KINDS == (
        "inventory.refresh",
        "logs.collect",
        "diag.*",
        "disk.wipe",
        "deploy.*",
        "boot.kexec",
    )


# Key and assertion


@pytest.mark.parametrize(
    ("reason", "site", "said"),
    [
        ("site-revoked", {"revoked": True, "expires_at": timedelta(0)}, {}),
        ("site-expired", {"expires_at": timedelta(0)}, {"site": "paris"}),
        ("site-expired", {"expires_at": -timedelta(days=1)}, {}),
        ("other-site", {}, {"site": "aachen", "csr_sha256": bytes(32)}),
        ("other-site", {}, {"site": "zurich"}),
        ("other-csr", {}, {"csr_sha256": bytes(32), "expires_at": timedelta(days=-1)}),
        ("other-csr", {}, {"csr_sha256": b"\xff" * 32}),
        ("stale", {}, {"expires_at": -timedelta(minutes=1)}),
        ("stale", {}, {"expires_at": -timedelta(days=1)}),
        ("too-long", {}, {"expires_at": timedelta(minutes=16, milliseconds=1)}),
        ("too-long", {}, {"expires_at": timedelta(days=1)}),
        ("no-machine", {}, {"product_uuid": None, "macs": [LOCAL]}),
        ("no-machine", {}, {"product_uuid": "0" * 32, "macs": []}),
    ],
)
def test_first_fact_that_fails_is_the_reason(
    reason: str, site: dict[str, Any], said: dict[str, Any]
) -> None:
    """Each is told with the tenant, which the signature has authenticated; the machine is known and an operator agrees, to no avail."""
    one = known()
    one.desk.facts.agrees = True
    for given in (site, said):
        if "expires_at" in given:
            given["expires_at"] = one.desk.now + given["expires_at"]
    one.site, one.said = replace(SITE, **site), said
    found = one.refusal()
    assert (found.reason, found.tenant_id) == (reason, "acme")


@pytest.mark.parametrize(
    "good_for",
    [
        -timedelta(minutes=1) + timedelta(milliseconds=1),
        timedelta(0),
        timedelta(minutes=16),
    ],
)
def test_assertion_is_good_to_its_last_moment_by_a_clock_a_minute_off(good_for: timedelta) -> None:
    """A site's clock is behind ours, or before: a minute either way turns no machine away."""
    one = known()
    one.site = replace(SITE, expires_at=one.desk.now + timedelta(microseconds=1))
    one.said = {"expires_at": one.desk.now + good_for}
    assert isinstance(one.verdict(), Admission)
    assert one.uses[0][1] == one.desk.now + good_for + timedelta(minutes=61)


def sized(length: int) -> Boot:
    """Return a machine with a token of so many bytes that a site's key has signed, of no assertion's shape."""
    for kid in ("k1", "key1", "the-key1"):  # Base64 has not every length behind each header
        key = JwsSigner(kid, Ed25519PrivateKey.from_private_bytes(bytes(32)))
        body = (length - len(key.sign(b"", TYP))) * 3 // 4
        token = key.sign(b"x" * body, TYP)
        if len(token) == length:
            return Boot(replace(SITE, kid=kid), payload=token)
    raise AssertionError(length)


def test_key_of_nobodys_and_signatures_that_do_not_hold_authenticate_no_tenant() -> None:
    """Else whoever makes up a token writes into a tenant's stream."""
    forger = JwsSigner("k1", Ed25519PrivateKey.generate())
    for one, reason in (
        (Boot(None), "unknown-site"),
        (Boot(payload=forger.sign(b"{}", TYP)), "bad-signature"),
        (Boot(payload=KEY.sign(b"{}", "watchword-response")), "bad-signature"),
        (Boot(payload=b"junk"), "malformed"),
    ):
        found = one.refusal()
        assert (found.reason, found.tenant_id) == (reason, None)


def test_assertion_is_read_up_to_its_bound_and_no_further() -> None:
    """Beyond the bound no key is looked up and nothing is verified; up to it, nonsense under a signature is its tenant's."""
    for length, tenant in ((MAX_ASSERTION_BYTES, "acme"), (MAX_ASSERTION_BYTES + 1, None)):
        found = sized(length).refusal()
        assert (found.reason, found.tenant_id) == ("malformed", tenant)


# Who it is


@pytest.mark.parametrize("approval", ["always", "unknown-machines", "zealous", ""])
def test_unknown_machine_is_an_operators_to_agree_to(approval: str) -> None:
    """Whatever the key's row says, an agent's word alone makes no new node."""
    one = Boot(replace(SITE, approval=approval))
    assert one.verdict() == Approval(
        NAMES[0].digest,
        GRANT,
        {
            "csrSha256": one.desk.csr.sha256.hex(),
            "productUuid": PRODUCT,
            "bmc": "10.0.0.7",
            "mac1": MACS[0],
            "mac2": MACS[1],
        },
    )
    assert one.uses == []
    one.desk.facts.agrees = True
    assert one.verdict() == GRANT
    assert len(one.uses) == 1


@pytest.mark.parametrize("approval", ["always", "zealous", "UNKNOWN-MACHINES", ""])
def test_known_machine_needs_an_operator_unless_its_keys_row_says_not(approval: str) -> None:
    """A word that we do not know fails closed; the operator sees which node would be re-keyed."""
    one = known()
    one.site = replace(SITE, approval=approval)
    asked = one.verdict()
    assert isinstance(asked, Approval)
    assert asked.facts["rekeysNode"] == str(RAMDISK)
    assert asked.grant == replace(GRANT, node_id=RAMDISK)


def test_operator_is_shown_no_name_that_nobody_said() -> None:
    """An empty line would pass for a fact."""
    one = Boot(said={"product_uuid": None, "bmc": None})
    asked = one.verdict()
    assert isinstance(asked, Approval)
    assert set(asked.facts) == {"csrSha256", "mac1", "mac2"}


def test_machine_is_named_by_what_identifies_it_and_by_nothing_else() -> None:
    """A made-up address or a placeholder would make one machine of many; the first name that counts binds it."""
    one = Boot(macs=[LOCAL, MACS[1]], said={"product_uuid": "f" * 32})
    asked = one.verdict()
    assert isinstance(asked, Approval)
    assert asked.subject == asked.grant.bind == NAMES[2].digest
    assert asked.grant.subjects == (NAMES[2], Subject("site-key", "k1"))
    one = Boot(macs=[LOCAL])
    asked = one.verdict()
    assert isinstance(asked, Approval)
    assert asked.grant.subjects == (NAMES[0], Subject("site-key", "k1"))


def test_uuid_alone_rekeys_only_with_an_operator() -> None:
    """Boards ship with one UUID: a known machine by that and nothing else may be its neighbour."""
    one = known()
    one.macs = [LOCAL]
    asked = one.verdict()
    assert isinstance(asked, Approval)
    assert asked.facts["rekeysNode"] == str(RAMDISK)
    assert asked.grant.node_id == RAMDISK


@pytest.mark.parametrize("names", [NAMES[:1], ()])
@pytest.mark.parametrize("state", ["active", "evicted", "adopting"])
def test_same_uuid_with_no_mac_in_common_is_another_machine(
    names: Sequence[Subject], state: str
) -> None:
    """Re-keyed, the neighbour with the same UUID would take over the machine that is here."""
    one = known(names, state=state)
    one.desk.facts.agrees = True
    found = one.refusal()
    assert (found.reason, found.tenant_id) == ("identity-conflict", "acme")


@pytest.mark.parametrize("mac", NAMES[1:])
def test_uuid_and_one_mac_are_enough(mac: Subject) -> None:
    """An adapter is exchanged, and the machine stays the same."""
    assert known([NAMES[0], mac]).verdict() == replace(GRANT, node_id=RAMDISK)


def test_without_a_uuid_every_mac_has_to_agree() -> None:
    """One adapter that wandered into another machine makes it no other machine's ramdisk."""
    for names, is_same in ((NAMES[1:], True), (NAMES[1:2], False), (NAMES[2:], False)):
        one = Boot(said={"product_uuid": None}).knows((node(), names)).bound(NAMES[1])
        if is_same:
            found = one.verdict()
            assert isinstance(found, Admission)
            assert found.node_id == RAMDISK
        else:
            assert one.refusal().reason == "identity-conflict"


@pytest.mark.parametrize(
    "changes",
    [{"role": "node"}, {"role": "site"}, {"site": "aachen"}, {"site": "zurich"}, {"site": None}],
)
def test_only_a_ramdisk_of_the_same_site_is_rekeyed(changes: dict[str, Any]) -> None:
    """A site's agent must not take over a managed node, nor a machine of another site."""
    one = known(**changes)
    one.desk.facts.agrees = True
    found = one.refusal()
    assert (found.reason, found.tenant_id) == ("identity-conflict", "acme")


def test_binding_to_a_node_that_is_gone_is_a_conflict() -> None:
    """Whose name it was cannot be seen any more: no."""
    found = Boot().bound().refusal()
    assert (found.reason, found.tenant_id) == ("identity-conflict", "acme")


@pytest.mark.parametrize("names", [NAMES, NAMES[:1]])
def test_banned_ramdisk_is_the_cores_to_refuse(names: Sequence[Subject]) -> None:
    """The security team is told of a ban, and not of a conflict; nobody is asked to agree first."""
    one = known(names, state="".join("banned"))
    assert one.verdict() == replace(GRANT, node_id=RAMDISK)


def test_banned_ramdisk_that_no_name_leads_to_is_found_by_its_binding() -> None:
    """Names are dropped, bindings are not."""
    one = known((), state="banned")
    assert one.verdict() == replace(GRANT, node_id=RAMDISK)


@pytest.mark.parametrize("number", [7, 70])
def test_name_of_another_living_node_keeps_a_known_ramdisk_waiting(number: int) -> None:
    """The machine's disk has a node of its own by now: an operator sees which."""
    one = known().knows((node(number, role="node", state="adopting"), NAMES[2:]))
    asked = one.verdict()
    assert isinstance(asked, Approval)
    assert asked.grant.node_id == RAMDISK
    assert asked.facts["rekeysNode"] == str(RAMDISK)
    assert asked.facts["linkedNode1"] == f"{UUID(int=number)} node adopting"
    assert "linkedNode2" not in asked.facts


def test_operator_sees_the_first_eight_nodes_that_have_a_name_of_an_unknown_machine() -> None:
    """In one order, so that two operators read the same; the list is bounded, for names are cheap."""
    numbers = (9, 3, 5, 1, 7, 8, 2, 6, 4)
    one = Boot().knows(*((node(number, role="node"), NAMES) for number in numbers))
    asked = one.verdict()
    assert isinstance(asked, Approval)
    linked = {name: said for name, said in asked.facts.items() if name.startswith("linked")}
    assert linked == {
        f"linkedNode{number}": f"{UUID(int=number)} node active" for number in range(1, 9)
    }
    assert "rekeysNode" not in asked.facts


@pytest.mark.parametrize("tenant", ["aaa", "zebra"])
def test_nodes_of_other_tenants_are_neither_shown_nor_in_the_way(tenant: str) -> None:
    """Tenants stay apart, whatever a table says; a node that was deleted meanwhile is nobody."""
    one = known().knows((node(7, tenant=TenantId(tenant)), NAMES))
    one.desk.facts.subjects[NAMES[1]].insert(0, NodeId(UUID(int=1)))
    assert one.verdict() == replace(GRANT, node_id=RAMDISK)
