"""The verdict on an image's secret: each fact about the image decides, and then the second fact."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
import structlog.testing

from tests.support.contexts import Desk, Facts, run
from watchword.handlers.anchors import Image
from watchword.handlers.attestor import (
    Admission,
    Approval,
    Challenge,
    Deferral,
    Evidence,
    Subject,
)
from watchword.handlers.attestors.image.evidence import ImageEvidence, SecondEvidence
from watchword.handlers.attestors.image.reasons import REASONS
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.crypto.named_secrets import NamedSecret
from watchword.handlers.errors import NotProvable, Refused, tried_digest
from watchword.schemas.canonical import length_prefixed
from watchword.schemas.ids import ROLES, NodeId, Role, TenantId, UnverifiedPayload
from watchword.schemas.requests import Claims

ID = "a1b2c3d4e5f6g7h8"
SECRET = bytes(range(32))
MACHINE = "4c4c4544-0051-3610-8052-b4c04f335931"
IMAGE = Image(
    id=ID,
    secret_sha256=sha256(SECRET).digest(),
    tenant=TenantId("acme"),
    pool="web",
    site="berlin",
    role="node",
    second_fact="unsafe_single_factor",
    once_per_machine=False,
    allowed_kinds=("diag.*",),
    expect={},
    expires_at=None,
    revoked=False,
)
GRANT = Admission(
    tenant=TenantId("acme"),
    role="node",
    pool="web",
    site="berlin",
    allowed_kinds=("diag.*",),
    subjects=(Subject("image", ID),),
)
PROVED = replace(IMAGE, second_fact="attestor:tpm")
SECOND = SecondEvidence("tpm", UnverifiedPayload(b"quote"))
NODE = NodeId(UUID(int=77))
PROOF = Admission(
    tenant=TenantId("acme"),
    role="node",
    pool="web",
    site="berlin",
    node_id=NODE,
    hardware_key="ek:1",
    allowed_kinds=("*",),
    subjects=(Subject("ek", "1"),),
)


@dataclass
class Asked:
    """One request, and the desk that it is judged at."""

    image: Image | None = IMAGE
    second: SecondEvidence | None = None
    claims: Claims = field(default_factory=lambda: Claims(product_uuid=MACHINE, serial="s1"))
    secret: bytes = SECRET
    desk: Desk = field(default_factory=lambda: Desk("image"))
    uses: list[bytes] = field(default_factory=list[bytes])

    def verdict(self, state: bytes | None = None) -> Admission | Deferral:
        if self.image is not None:
            self.desk.facts.images[ID] = self.image
        payload = ImageEvidence(NamedSecret(ID, self.secret), self.second).encode()
        context = self.desk.context(state)
        found = run(
            ImageAttestor().verify(Evidence(UnverifiedPayload(payload), self.claims), context)
        )
        self.uses = [subject for subject, _ in context.staged.uses]
        assert all(expires is None for _, expires in context.staged.uses)
        assert not context.staged.spends
        return found


def refusal(judge: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        judge()
    return caught.value


def changed(**changes: Any) -> Asked:  # noqa: ANN401 - any field
    return Asked(replace(IMAGE, **changes))


def test_secret_alone_admits_only_where_an_operator_said_unsafe_and_that_is_logged() -> None:
    """Whoever takes an image from a shelf has its secret: who allows that reads it in the log, each time."""
    with structlog.testing.capture_logs() as logged:
        assert Asked().verdict() == GRANT
    assert logged == [
        {
            "event": "an image admits by its secret alone",
            "log_level": "warning",
            "image": ID,
            "tenant": "acme",
        }
    ]


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("revoked", {"revoked": True, "expires_at": timedelta(0)}),
        ("expired", {"expires_at": timedelta(0), "role": "site"}),
        ("expired", {"expires_at": -timedelta(days=1)}),
        ("wrong-role", {"role": "site", "expect": {"serial": "s2"}}),
        ("expectation", {"expect": {"serial": "s2"}, "once_per_machine": True}),
        ("expectation", {"expect": {"node": str(NODE)}}),
        ("expectation", {"expect": {"serial": "s1", "node": str(NODE)}}),
        ("second-fact", {"second_fact": "nothing that we know"}),
        ("second-fact", {"second_fact": ""}),
    ],
)
def test_first_fact_that_fails_is_the_reason(reason: str, change: dict[str, Any]) -> None:
    """Each is told with the tenant, which the secret has authenticated, and the credential's digest."""
    one = Asked()
    if "expires_at" in change:
        change = {**change, "expires_at": one.desk.now + change["expires_at"]}
    one.image = replace(IMAGE, **change)
    found = refusal(one.verdict)
    assert (found.attestor, found.reason, found.tenant_id) == ("image", reason, "acme")
    assert found.tried == tried_digest("image", ID)


def test_image_is_good_to_its_last_moment_and_for_what_it_expects() -> None:
    """What narrows must let through what it was written for."""
    one = Asked()
    one.image = replace(IMAGE, expires_at=one.desk.now + timedelta(microseconds=1))
    assert one.verdict() == GRANT
    assert changed(expect={"serial": "s1", "productUuid": MACHINE}).verdict() == GRANT


@pytest.mark.parametrize("asked", sorted(ROLES))
@pytest.mark.parametrize("given", sorted(ROLES))
def test_image_is_for_its_own_role_and_no_other(given: Role, asked: Role) -> None:
    """A ramdisk's image makes no node and no site, nor the other way round, wherever the words were read from."""
    read_anew: Any = "".join(asked)
    one = Asked(replace(IMAGE, role=given), desk=Desk("image", read_anew))
    if given == asked:
        assert one.verdict() == replace(GRANT, role=given)
    else:
        assert refusal(one.verdict).reason == "wrong-role"


def test_wrong_secret_unknown_image_and_junk_are_nobodys() -> None:
    """None has authenticated a tenant; the first two name the credential that was tried."""
    for one, reason in (
        (Asked(replace(IMAGE, revoked=True), secret=bytes(32)), "bad-secret"),
        (Asked(None), "unknown-image"),
    ):
        found = refusal(one.verdict)
        assert (found.reason, found.tenant_id) == (reason, None)
        assert found.tried == tried_digest("image", ID)
    evidence = Evidence(UnverifiedPayload(b"junk"), Claims())
    found = refusal(lambda: run(ImageAttestor().verify(evidence, Desk("image").context())))
    assert (found.reason, found.tenant_id, found.tried) == ("malformed", None, None)


def test_machine_uses_an_image_once_by_its_uuid_in_any_spelling() -> None:
    """One machine, one use of this image; another machine and another image have theirs."""
    one = changed(once_per_machine=True)
    assert one.verdict() == GRANT
    assert one.uses == [sha256(length_prefixed(ID.encode(), MACHINE.encode())).digest()]
    spelt = Asked(one.image, claims=Claims(product_uuid=MACHINE.upper()))
    assert spelt.verdict() == GRANT
    assert spelt.uses == one.uses
    often = Asked()
    assert often.verdict() == GRANT
    assert often.uses == []
    nameless = Asked(claims=Claims())
    assert nameless.verdict() == GRANT
    for claims in (Claims(), Claims(product_uuid="00000000-0000-0000-0000-000000000000")):
        found = refusal(Asked(replace(one.image or IMAGE, second_fact="?"), claims=claims).verdict)
        assert (found.reason, found.tenant_id) == ("no-machine", "acme")
        assert found.tried == tried_digest("image", ID)


def test_what_is_published_of_the_attestor_is_what_it_was_released_with() -> None:
    """Its id and version stand in tables, states and refusals."""
    attestor = ImageAttestor()
    assert (attestor.id, attestor.version, attestor.roles) == ("image", "1", ROLES)
    assert attestor.reasons is REASONS


# An operator's word


def test_operator_is_asked_about_image_claims_and_csr_and_sees_harmless_words() -> None:
    """What a machine says of itself must not write into a terminal, nor pass for a fact."""
    one = changed(second_fact="approval", once_per_machine=True)
    one.claims = Claims(product_uuid=MACHINE, serial="s1\x1b[2J<b>")
    asked = one.verdict()
    csr = one.desk.csr.sha256
    assert asked == Approval(
        sha256(length_prefixed(ID.encode(), MACHINE.encode(), b"s1\x1b[2J<b>", csr)).digest(),
        GRANT,
        {
            "image": ID,
            "csrSha256": csr.hex(),
            "claimedProductUuid": MACHINE,
            "claimedSerial": "s1??2J?b?",
        },
    )
    assert one.uses == []
    one.desk.facts.agrees = True
    assert one.verdict() == GRANT
    assert len(one.uses) == 1


def test_machine_that_says_nothing_is_asked_about_all_the_same() -> None:
    """An operator decides on the CSR's fingerprint; a claim that was not made is not shown as an empty one."""
    one = Asked(replace(IMAGE, second_fact="approval"), claims=Claims())
    asked = one.verdict()
    assert isinstance(asked, Approval)
    csr = one.desk.csr.sha256
    assert asked.subject == sha256(length_prefixed(ID.encode(), b"", b"", csr)).digest()
    assert asked.facts == {"image": ID, "csrSha256": csr.hex()}


@pytest.mark.parametrize("second_fact", ["approval", "unsafe_single_factor", "?"])
def test_second_evidence_that_nobody_asked_for_is_refused(second_fact: str) -> None:
    """It would be evidence that was never judged, in a join that looks judged."""
    one = Asked(replace(IMAGE, second_fact=second_fact), SECOND)
    one.desk.facts.agrees = True
    found = refusal(one.verdict)
    assert (found.reason, found.tenant_id) == ("second-other", "acme")
    assert found.tried == tried_digest("image", ID)


# Another attestor's proof


def proved(**changes: Any) -> Asked:  # noqa: ANN401 - any field of the proof
    """Return a machine that another attestor vouches for."""
    facts = Facts(proofs={("tpm", b"quote"): replace(PROOF, **changes)})
    return Asked(PROVED, SECOND, desk=Desk("image", facts=facts))


def test_proof_is_carried_with_the_images_own_place_and_kinds() -> None:
    """Whose machine it is says the proof, what it may be told says the image; each has read its words for itself."""
    one = proved(tenant=TenantId("".join("acme")), pool="".join("web"), site="".join("berlin"))
    one.image = replace(PROVED, once_per_machine=True)
    assert one.verdict() == replace(
        GRANT,
        node_id=NODE,
        hardware_key="ek:1",
        subjects=(Subject("image", ID), Subject("ek", "1")),
    )
    assert len(one.uses) == 1
    assert one.desk.facts.states_shown == [None]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (None, "second-missing"),
        (SecondEvidence("x509pop", UnverifiedPayload(b"quote")), "second-other"),
        (SecondEvidence("acme", UnverifiedPayload(b"quote")), "second-other"),
    ],
)
def test_only_the_attestor_that_the_image_names_counts(
    second: SecondEvidence | None, reason: str
) -> None:
    """A machine must not choose the easier proof."""
    one = proved()
    one.second = second
    found = refusal(one.verdict)
    assert (found.reason, found.tenant_id) == (reason, "acme")
    assert found.tried == tried_digest("image", ID)
    assert one.desk.facts.states_shown == []


def test_attestor_that_cannot_prove_is_no_second_fact_and_its_refusal_is_the_joins() -> None:
    """Fails closed, and the reason stays readable: whose it is."""
    one = proved()
    one.desk.facts.proofs["tpm", b"quote"] = NotProvable("not installed")
    found = refusal(one.verdict)
    assert (found.attestor, found.reason, found.tenant_id) == ("image", "second-fact", "acme")
    assert found.tried == tried_digest("image", ID)
    one.desk.facts.proofs.clear()
    assert refusal(one.verdict).attestor == "tpm"


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"tenant": TenantId("zebra")},
        {"tenant": TenantId("aaa")},
        {"pool": "xeb"},
        {"pool": "db"},
        {"site": "zurich"},
        {"site": "aachen"},
        {"site": None},
    ],
)
def test_both_facts_lead_to_one_place(elsewhere: dict[str, Any]) -> None:
    """Whoever has a machine in one pool and the secret of another's image must not have that one too."""
    found = refusal(proved(**elsewhere).verdict)
    assert (found.reason, found.tenant_id) == ("second-elsewhere", "acme")
    assert found.tried == tried_digest("image", ID)


def test_image_of_no_site_takes_a_machine_of_any() -> None:
    """Its operator has not said where it belongs; the proof's site is not taken over."""
    one = proved()
    one.image = replace(PROVED, site=None)
    found = one.verdict()
    assert isinstance(found, Admission)
    assert found.site is None


def asks() -> tuple[Asked, Challenge]:
    """Return a machine that the other attestor asks something, and what it is asked."""
    one = proved()
    not_after = one.desk.now + timedelta(seconds=90)
    one.desk.facts.proofs["tpm", b"quote"] = Challenge(b"answer this", b"its state", not_after)
    found = one.verdict()
    assert isinstance(found, Challenge)
    return one, found


def test_challenge_of_the_other_attestor_comes_back_to_it_with_its_own_state() -> None:
    """And ends when it says: two rounds through an image are as strict as two rounds without."""
    one, challenge = asks()
    assert challenge.challenge == b"answer this"
    assert challenge.not_after == one.desk.now + timedelta(seconds=90)
    assert one.uses == []
    one.desk.facts.proofs["tpm", b"quote"] = PROOF
    one.desk.now += timedelta(seconds=89)
    assert isinstance(one.verdict(challenge.state), Admission)
    assert one.desk.facts.states_shown == [None, b"its state"]
    one.desk.now += timedelta(seconds=1)
    assert refusal(lambda: one.verdict(challenge.state)).reason == "challenge"


@pytest.mark.parametrize(
    "inside",
    [
        length_prefixed(b"b1b2c3d4e5f6g7h8", b"tpm", b"its state"),
        length_prefixed(b"01b2c3d4e5f6g7h8", b"tpm", b"its state"),
        length_prefixed(ID.encode(), b"x509pop", b"its state"),
        length_prefixed(ID.encode(), b"acme", b"its state"),
        length_prefixed(ID.encode(), b"tpm"),
        b"its state",
    ],
)
def test_state_of_another_image_or_attestor_is_none(inside: bytes) -> None:
    """A state that was made for one pair proves nothing to another, although we have sealed it."""
    one = proved()
    state = one.desk.context().seal_state(inside, timedelta(minutes=1))
    for shown in (state, b"junk"):
        found = refusal(partial(one.verdict, shown))
        assert (found.reason, found.tenant_id) == ("challenge", "acme")
        assert found.tried == tried_digest("image", ID)
    assert one.desk.facts.states_shown == []
