"""The verdict on a join token: each fact about the token decides, in the order that is written down."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from tests.support.contexts import Desk, Facts, run
from watchword.handlers.attestor import Admission, Evidence
from watchword.handlers.attestors.join_token.evidence import encode
from watchword.handlers.attestors.join_token.verifier import JoinTokenAttestor
from watchword.handlers.errors import Refused, tried_digest
from watchword.handlers.reads import Token
from watchword.schemas.ids import ROLES, NodeId, Role, TenantId, TokenId, UnverifiedPayload
from watchword.schemas.reasons import JOIN_TOKEN
from watchword.schemas.requests import Claims

ID = "a1b2c3d4e5f6g7h8"
SECRET = bytes(range(32))
NODE = "0190163d-8694-739b-aea5-966c26f8ad91"
TOKEN = Token(
    id=TokenId(ID),
    secret_sha256=sha256(SECRET).digest(),
    tenant=TenantId("acme"),
    pool="web",
    site="berlin",
    role="node",
    uses_left=1,
    expires_at=None,
    revoked=False,
    allow_reclaim=False,
    allowed_kinds=("diag.*",),
    expect={"node": NODE},
)


def verdict(
    payload: bytes = encode(ID, SECRET), token: Token | None = TOKEN
) -> tuple[Admission | Refused, tuple[str, ...]]:
    """Return what the verifier says, and which tokens it would spend."""
    context = Desk("join-token", facts=Facts(tokens={} if token is None else {ID: token})).context()
    evidence = Evidence(UnverifiedPayload(payload), Claims())
    try:
        found = run(JoinTokenAttestor().verify(evidence, context))
    except Refused as refused:
        return refused, tuple(context.staged.spends)
    assert isinstance(found, Admission)
    return found, tuple(context.staged.spends)


def test_token_gives_what_stands_in_its_row_and_is_spent_once() -> None:
    """A machine gets the tenant, pool, site, role and kinds that the operator has given, and no others."""
    found, spent = verdict()
    assert found == Admission(
        tenant=TenantId("acme"),
        role="node",
        pool="web",
        site="berlin",
        token_id=TokenId(ID),
        allowed_kinds=("diag.*",),
    )
    assert spent == (ID,)


def test_named_node_is_taken_over_only_if_the_token_may_reclaim() -> None:
    """`expect` alone narrows; it takes nobody's place."""
    found, _ = verdict(token=replace(TOKEN, allow_reclaim=True))
    assert isinstance(found, Admission)
    assert found.node_id == NodeId(UUID(NODE))
    found, _ = verdict(token=replace(TOKEN, allow_reclaim=True, expect={}))
    assert isinstance(found, Admission)
    assert found.node_id is None


@pytest.mark.parametrize(
    ("reason", "change", "tenant"),
    [
        ("bad-secret", {"secret_sha256": sha256(b"another").digest(), "revoked": True}, None),
        ("revoked", {"revoked": True, "uses_left": 0}, "acme"),
        ("expired", {"expires_at": timedelta(0), "uses_left": 0}, "acme"),
        ("used-up", {"uses_left": 0, "role": "site"}, "acme"),
        ("used-up", {"uses_left": -1}, "acme"),
        ("wrong-role", {"role": "site"}, "acme"),
    ],
)
def test_first_fact_that_fails_is_the_reason(
    reason: str, change: dict[str, Any], tenant: str | None
) -> None:
    """The tenant is told only once the secret has authenticated it, and the credential is named by its digest."""
    desk = Desk("join-token")
    if "expires_at" in change:
        change = {**change, "expires_at": desk.now - timedelta(seconds=1)}
    found, spent = verdict(token=replace(TOKEN, **change))
    assert isinstance(found, Refused)
    assert (found.attestor, found.reason, found.tenant_id) == ("join-token", reason, tenant)
    assert found.tried == tried_digest("join-token", ID)
    assert spent == ()


def test_token_ends_in_the_moment_that_is_written_in_it() -> None:
    """An expiry is the first moment at which it is too late."""
    desk = Desk("join-token")
    for expires_at, is_good in ((desk.now, False), (desk.now + timedelta(microseconds=1), True)):
        desk.facts.tokens[ID] = replace(TOKEN, expires_at=expires_at)
        evidence = Evidence(UnverifiedPayload(encode(ID, SECRET)), Claims())
        if is_good:
            assert isinstance(run(JoinTokenAttestor().verify(evidence, desk.context())), Admission)
        else:
            with pytest.raises(Refused, match="expired"):
                run(JoinTokenAttestor().verify(evidence, desk.context()))


@pytest.mark.parametrize("asked", sorted(ROLES))
@pytest.mark.parametrize("given", sorted(ROLES))
def test_token_is_for_its_own_role_and_no_other(given: Role, asked: Role) -> None:
    """A ramdisk's token makes no node and no site, nor the other way round, wherever the words were read from."""
    read_anew: Any = "".join(asked)
    desk = Desk("join-token", read_anew, Facts(tokens={ID: replace(TOKEN, role=given)}))
    evidence = Evidence(UnverifiedPayload(encode(ID, SECRET)), Claims())
    if given == asked:
        assert isinstance(run(JoinTokenAttestor().verify(evidence, desk.context())), Admission)
    else:
        with pytest.raises(Refused, match="wrong-role"):
            run(JoinTokenAttestor().verify(evidence, desk.context()))


def test_unknown_token_and_junk_are_nobodys() -> None:
    """Neither has authenticated anybody; only the first names a credential."""
    found, _ = verdict(token=None)
    assert isinstance(found, Refused)
    assert (found.reason, found.tenant_id) == ("unknown-token", None)
    assert found.tried == tried_digest("join-token", ID)
    found, _ = verdict(payload=b"junk")
    assert isinstance(found, Refused)
    assert (found.reason, found.tenant_id, found.tried) == ("malformed", None, None)


def test_what_is_published_of_the_attestor_is_what_it_was_released_with() -> None:
    """Its id and version stand in tables, states and refusals."""
    attestor = JoinTokenAttestor()
    assert (attestor.id, attestor.version, attestor.roles) == ("join-token", "1", ROLES)
    assert attestor.reasons == JOIN_TOKEN
