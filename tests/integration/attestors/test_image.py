"""image on a real service: one fact, and the second that it needs."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime, timedelta
from hashlib import sha256

import pytest
import structlog

from tests.support.anchors import image
from tests.support.joins import Bench, join_bench
from tests.support.proving import (
    approve_all,
    ban,
    csr_sha256,
    first_request,
    join,
    last_reason,
)
from watchword.handlers.attestors.image.evidence import new_image, parse_image, text_of
from watchword.handlers.attestors.image.prover import ImageProver
from watchword.handlers.attestors.image.verifier import ImageAttestor
from watchword.handlers.crypto.named_secrets import NamedSecret
from watchword.schemas.requests import Claims

pytestmark = pytest.mark.postgres

UUID = "4c4c4544-0043-3510-8052-b4c04f4e3332"


@pytest.fixture
async def bench(database: str) -> AsyncGenerator[Bench]:
    """Give a service that takes images."""
    async with join_bench(database, attestors=[ImageAttestor()]) as bench:
        await bench.place("acme", "web", "berlin")
        yield bench


async def test_machine_joins_after_an_operator_agreed(bench: Bench) -> None:
    """The operator sees image, claims and fingerprint, and what they agreed to is what is admitted."""
    made, machine = await image(bench), bench.machine()
    claims = Claims(product_uuid=UUID, serial="SN-1")
    waits = await join(bench, machine, made.prover, claims=claims)
    facts = json.loads(await bench.one("SELECT facts::text FROM join_requests"))
    await approve_all(bench)
    joined = await join(bench, machine, made.prover, claims=claims)

    assert waits["deferred"]["type"] == "approval"
    assert facts == {
        "image": made.id,
        "csrSha256": csr_sha256(machine).hex(),
        "claimedProductUuid": UUID,
        "claimedSerial": "SN-1",
    }
    assert joined["outcome"] == "joined"
    place = joined["joined"]
    assert (place["tenant"], place["pool"], place["site"]) == ("acme", "web", "berlin")
    assert place["allowedKinds"] == ["diag.*"]


async def test_word_for_other_claims_or_another_key_does_not_count(bench: Bench) -> None:
    """An approval for a request that changed is none."""
    made, machine = await image(bench), bench.machine()
    await join(bench, machine, made.prover, claims=Claims(serial="SN-1"))
    await approve_all(bench)
    changed = await join(bench, machine, made.prover, claims=Claims(serial="SN-2"))
    other = await join(bench, bench.machine(), made.prover, claims=Claims(serial="SN-1"))

    assert changed["outcome"] == other["outcome"] == "deferred"
    assert await bench.one("SELECT count(*) FROM nodes") == 0


async def test_hostile_claims_reach_an_operator_harmless(bench: Bench) -> None:
    """A serial number with control characters would speak to the operator's terminal."""
    made = await image(bench)
    waits = await join(
        bench, bench.machine(), made.prover, claims=Claims(serial="\x1b[2J<b>\n", product_uuid="\0")
    )
    facts = json.loads(await bench.one("SELECT facts::text FROM join_requests"))

    assert waits["outcome"] == "deferred"
    claimed = json.loads(await bench.one("SELECT claims::text FROM join_requests"))

    assert claimed == {"productUuid": "?", "serial": "?[2J<b>?"}
    assert facts["claimedSerial"] == "??2J?b??"
    assert facts["claimedProductUuid"] == "?"


async def test_single_factor_is_possible_and_leaves_a_warning(bench: Bench) -> None:
    """Whoever spells it out gets it, and reads of it at every admission."""
    made = await image(bench, second_fact="unsafe_single_factor")
    with structlog.testing.capture_logs() as logs:
        answer = await join(bench, bench.machine(), made.prover)

    assert answer["outcome"] == "joined"
    warned = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [entry["event"] for entry in warned] == ["an image admits by its secret alone"]
    assert made.text not in str(logs)


async def _unknown(bench: Bench) -> ImageProver:
    await image(bench)
    return ImageProver(lambda: new_image()[1])


async def _bad_secret(bench: Bench) -> ImageProver:
    made = await image(bench)
    return ImageProver(lambda: text_of(NamedSecret(made.id, bytes(32))))


async def _revoked(bench: Bench) -> ImageProver:
    made = await image(bench)
    await bench.run("UPDATE images SET revoked_at = now()")
    return made.prover


async def _expired(bench: Bench) -> ImageProver:
    now: datetime = await bench.one("SELECT watchword.now()")
    return (await image(bench, expires_at=now - timedelta(seconds=1))).prover


async def _other_role(bench: Bench) -> ImageProver:
    return (await image(bench, role="site")).prover


async def _unexpected(bench: Bench) -> ImageProver:
    return (
        await image(bench, second_fact="unsafe_single_factor", expect={"serial": "SN-9"})
    ).prover


async def _expects_a_node(bench: Bench) -> ImageProver:
    expect = {"node": "0190163d-8694-739b-aea5-966c26f8ad91"}
    return (await image(bench, second_fact="unsafe_single_factor", expect=expect)).prover


async def _unknown_expectation(bench: Bench) -> ImageProver:
    return (await image(bench, second_fact="unsafe_single_factor", expect={"colour": "red"})).prover


async def _no_machine(bench: Bench) -> ImageProver:
    return (await image(bench, second_fact="unsafe_single_factor", once_per_machine=True)).prover


@pytest.mark.parametrize(
    ("prover", "reason", "tenant"),
    [
        (_unknown, "unknown-image", "root"),
        (_bad_secret, "bad-secret", "root"),
        (_revoked, "revoked", "acme"),
        (_expired, "expired", "acme"),
        (_other_role, "wrong-role", "acme"),
        (_unexpected, "expectation", "acme"),
        (_expects_a_node, "expectation", "acme"),
        (_unknown_expectation, "expectation", "acme"),
        (_no_machine, "no-machine", "acme"),
    ],
)
async def test_refusals_have_their_reasons(
    bench: Bench, prover: Callable[[Bench], Awaitable[ImageProver]], reason: str, tenant: str
) -> None:
    """The tenant is named only once the secret has authenticated it."""
    answer = await join(
        bench, bench.machine(), await prover(bench), claims=Claims(product_uuid="0" * 32)
    )

    assert answer["refused"] == {"code": "ACCESS_DENIED", "message": "Join refused"}
    assert await last_reason(bench) == f"image:{reason}"
    assert await bench.one("SELECT tenant FROM refusals") == tenant
    assert await bench.one("SELECT count(*) FROM nodes") == 0
    assert await bench.one("SELECT count(*) FROM join_requests") == 0


async def test_met_expectation_is_no_second_fact(bench: Bench) -> None:
    """A machine claims what it likes: what is expected of the claims narrows, and never counts."""
    made = await image(bench, expect={"serial": "SN-1"})
    answer = await join(bench, bench.machine(), made.prover, claims=Claims(serial="SN-1"))

    assert answer["outcome"] == "deferred"


@pytest.mark.case("B77")
async def test_machine_may_use_an_image_once(bench: Bench) -> None:
    """A second key with the same product UUID is refused, in whatever spelling; the joined one stays."""
    made = await image(bench, second_fact="unsafe_single_factor", once_per_machine=True)
    first = await join(bench, bench.machine(), made.prover, claims=Claims(product_uuid=UUID))
    second = await join(
        bench, bench.machine(), made.prover, claims=Claims(product_uuid=UUID.upper())
    )

    assert [first["outcome"], second["outcome"]] == ["joined", "refused"]
    assert await last_reason(bench) == "image:replayed"
    assert await bench.one("SELECT count(*) FROM nodes") == 1


@pytest.mark.case("B77")
@pytest.mark.parametrize(
    "product_uuid",
    [
        None,
        "",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
        "Not Specified",
    ],
)
async def test_weak_uuid_names_no_machine(bench: Bench, product_uuid: str | None) -> None:
    """Boards that ship with equal UUIDs must not lock each other out, and are no machines of their own."""
    made = await image(bench, second_fact="unsafe_single_factor", once_per_machine=True)
    claims = Claims(product_uuid=product_uuid)
    answer = await join(bench, bench.machine(), made.prover, claims=claims)

    assert answer["outcome"] == "refused"
    assert await last_reason(bench) == "image:no-machine"
    assert await bench.one("SELECT count(*) FROM attestation_uses") == 0


async def test_use_is_taken_only_by_the_round_that_admits(bench: Bench) -> None:
    """A machine that waits, and is never agreed to, has used nothing up."""
    made = await image(bench, once_per_machine=True)
    machine, claims = bench.machine(), Claims(product_uuid=UUID)
    await join(bench, machine, made.prover, claims=claims)
    waiting = await bench.one("SELECT count(*) FROM attestation_uses")
    await approve_all(bench)
    await join(bench, machine, made.prover, claims=claims)

    assert waiting == 0
    used = await bench.fetch("SELECT attestor, expires_at FROM attestation_uses")
    assert [tuple(row) for row in used] == [("image", None)]


@pytest.mark.case("B74")
async def test_banned_image_neither_admits_nor_waits(bench: Bench) -> None:
    """A leaked image is stopped at once, also for whoever has an operator's word already."""
    made, machine = await image(bench), bench.machine()
    await join(bench, machine, made.prover)
    await approve_all(bench)
    await ban(bench, "image", made.id)
    approved = await join(bench, machine, made.prover)
    fresh = await join(bench, bench.machine(), made.prover)

    assert [approved["outcome"], fresh["outcome"]] == ["refused", "refused"]
    assert await last_reason(bench) == "join:banned"
    assert await bench.one("SELECT count(*) FROM nodes") == 0


async def test_secret_is_nowhere(bench: Bench) -> None:
    """Neither as text nor as bytes does it stand in any row that an exchange leaves."""
    made = await image(bench)
    secret = parse_image(made.text).secret
    await bench.ask(await first_request(bench.machine(), made.prover))
    for table in ("journal", "refusals", "join_requests", "inbox", "audit_log", "images"):
        rows = await bench.fetch(f"SELECT t::text FROM {table} t")  # noqa: S608 - our tables
        for row in rows:
            assert secret.hex() not in row[0]
            assert made.text.split(".")[2] not in row[0]
    assert await bench.one("SELECT secret_sha256 FROM images") == sha256(secret).digest()
