"""The seam for authors keeps its names and types: what is written against it today works tomorrow."""

import inspect
from dataclasses import fields
from typing import assert_type

from watchword.handlers import attestor
from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    Deferral,
    Defined,
    Evidence,
    JoinContext,
    Reason,
    Refused,
    TenantId,
    check_attestor,
    define_attestor,
    refuser,
)

NAMES = [
    "CONTRACT",
    "Admission",
    "AnchorReads",
    "Approval",
    "Attestor",
    "AttestorId",
    "BindingReads",
    "Challenge",
    "Claims",
    "ConfigRefused",
    "Deferral",
    "Defined",
    "Evidence",
    "Fact",
    "JoinContext",
    "Node",
    "NodeCertificate",
    "NodeId",
    "NodeReads",
    "RawTransaction",
    "Reason",
    "Recorder",
    "Refused",
    "Refuser",
    "RequestReads",
    "Role",
    "SchemaError",
    "SealBroken",
    "Severity",
    "Staged",
    "Subject",
    "TenantId",
    "Token",
    "TokenId",
    "TokenReads",
    "UnverifiedPayload",
    "check_attestor",
    "define_attestor",
    "is_digest",
    "length_prefixed",
    "read_length_prefixed",
    "refuser",
]

ADMISSION = [
    "tenant",
    "role",
    "pool",
    "site",
    "node_id",
    "token_id",
    "bind",
    "allowed_kinds",
    "node_key_uri",
    "hardware_key",
    "subjects",
    "certificate",
]


async def verify(evidence: Evidence, context: JoinContext) -> Admission | Deferral:
    """Write as an author would: this module is under `mypy --strict` and pyright."""
    assert_type(context.csr_sha256, bytes)
    assert_type(evidence.claims.serial, str | None)
    assert_type(await context.bindings.get(context.csr_sha256), attestor.NodeId | None)
    assert_type(context.open_state(), bytes | None)
    context.step(1, "the payload says something")
    context.found(csr=context.csr_sha256.hex(), bytes=len(evidence.payload), again=True)
    if evidence.payload == b"again":
        return context.request_approval(
            context.csr_sha256, Admission(TenantId("acme"), context.role, "web")
        )
    return Admission(tenant=TenantId("acme"), role=context.role, pool="web")


class Asset:
    id = "acme-asset"
    version = "1"
    roles = frozenset[attestor.Role](("node",))

    async def verify(self, evidence: Evidence, context: JoinContext) -> Admission:
        del evidence
        return Admission(TenantId("acme"), context.role, "web")


def test_authors_find_every_name_where_it_was() -> None:
    """A package that an author has shipped is not ours to mend."""
    assert set(attestor.__all__) >= set(NAMES)
    assert [name for name in attestor.__all__ if not hasattr(attestor, name)] == []
    assert attestor.CONTRACT == 1


def test_fields_keep_their_order_and_new_ones_have_defaults() -> None:
    """Somebody writes `Admission(tenant, role, pool)`."""
    assert [field.name for field in fields(Admission)][: len(ADMISSION)] == ADMISSION
    required = [
        name
        for name, parameter in inspect.signature(Admission).parameters.items()
        if parameter.default is inspect.Parameter.empty
    ]
    assert required == ["tenant", "role", "pool"]
    assert [field.name for field in fields(Challenge)] == ["challenge", "state", "not_after"]
    assert [field.name for field in fields(Approval)][:3] == ["subject", "grant", "facts"]


def test_types_are_those_that_authors_were_promised() -> None:
    """What mypy and pyright say of an author's package stays true; they check this module too."""
    made = define_attestor("acme-asset", version="1", roles={"node"}, verify=verify)
    assert_type(made, Defined)
    assert_type(made.reasons, tuple[Reason, ...])
    assert_type(check_attestor(Asset()), Asset)
    refusal = refuser("acme-asset")("bad-tag", tenant_id=TenantId("acme"))
    assert_type(refusal, Refused)
    accepts: attestor.Attestor = made
    assert accepts.id == "acme-asset"
