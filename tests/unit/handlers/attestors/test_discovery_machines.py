"""Which machine a site agent's word is about, and whether an operator has to agree: each fact decides, without a server."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.support.ramdisks import (
    GRANT,
    LOCAL,
    MACS,
    NAMES,
    PRODUCT,
    RAMDISK,
    SITE,
    Boot,
    known,
    node,
)
from watchword.handlers.attestor import Admission, Approval, Subject
from watchword.schemas.ids import NodeId, TenantId


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
