"""What several refusals together hint at is told: once, soon, and never in a flood."""

from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.support.keepers import Options, told
from tests.support.refusals import refuse, try_credential
from watchword.handlers.alerts import AlertRules
from watchword.handlers.store.connection import Connection
from watchword.schemas.events import JoinAlert
from watchword.streams.keeper.keeper import Keeper

pytestmark = pytest.mark.postgres

RULES = AlertRules(credentials=3)


async def alerts(connection: Connection, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the alerts in the journal, without those of reasons that are new unless asked for."""
    found = await told(connection, "security.join.alert")
    assert all(JoinAlert.model_validate(alert) for alert in found)
    return [a for a in found if (a["kind"] == kind if kind else a["kind"] != "new-reason")]


def digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()


async def later(connection: Connection) -> None:
    """Let the time to be quiet go by."""
    await connection.execute("UPDATE refusal_alerts SET quiet_until = '-infinity'")


@pytest.fixture
def keeper(options: Options) -> Keeper:
    return Keeper(options(alerts=RULES, credentials_s=0.0))


@pytest.mark.parametrize("by", ["hardware_key", "address"])
async def test_a_machine_that_tries_many_credentials_is_told(
    connection: Connection, keeper: Keeper, by: str
) -> None:
    """Guessing looks like many different tokens from one place; one token tried often is a mistake."""
    for tried in ("t1", "t2", "t2", "t2"):
        await try_credential(connection, tried, **{by: "192.0.2.7"})
    await try_credential(connection, "t3", **{by: "192.0.2.8"})
    await keeper.step()
    assert await alerts(connection) == []

    await try_credential(connection, "t3", **{by: "192.0.2.7"})
    await keeper.step()
    await try_credential(connection, "t4", **{by: "192.0.2.7"})
    await keeper.step()
    await keeper.close(is_idle=True)

    (alert,) = await alerts(connection, "many-credentials")
    shown = "192.0.2.7" if by == "address" else digest("192.0.2.7")
    assert (alert["subjects"], alert["examples"], alert["refusals"]) == (1, [shown], 5)
    assert (alert["tenant"], alert["code"], alert["severity"]) == ("root", "WA0001", "high")
    assert len(alert["requestIds"]) == 5


async def test_old_tries_are_forgotten(connection: Connection, options: Options) -> None:
    """A machine that has had a new token each month tries nothing."""
    keeper = Keeper(options(alerts=AlertRules(credentials=2, window=timedelta(minutes=10)), credentials_s=0.0))  # fmt: skip
    await try_credential(connection, "t1", hardware_key="ek")
    await connection.execute(
        "UPDATE refusals SET occurred_at = occurred_at - interval '11 minutes'"
    )
    await try_credential(connection, "t2", hardware_key="ek")
    await keeper.step()
    await keeper.close(is_idle=True)
    assert await alerts(connection) == []


@pytest.mark.parametrize(
    ("attestor", "reason", "kind", "subject"),
    [
        ("join-token", "used-up", "used-up-credential", digest("token")),
        ("tpm", "bound-elsewhere", "bound-elsewhere", digest("csr")),
        ("x509pop", "not-its-node", "bound-elsewhere", digest("csr")),
        ("join", "unseal", "moved-request", None),
    ],
)
async def test_one_refusal_of_these_is_enough(
    connection: Connection,
    keeper: Keeper,
    attestor: str,
    reason: str,
    kind: str,
    subject: str | None,
) -> None:
    """Each is either an attack or something that an operator has to put right."""
    await try_credential(connection, "token", attestor=attestor, reason=reason, tenant="acme")
    await keeper.step()
    await keeper.close(is_idle=True)

    (alert,) = await alerts(connection)
    assert (alert["kind"], alert["tenant"], alert["refusal"]) == (kind, "acme", f"{attestor}:{reason}")  # fmt: skip
    assert (alert["refusals"], alert["subjects"]) == (1, 1)
    assert subject is None or alert["examples"] == [subject]


async def test_what_happens_while_it_is_quiet_is_in_the_next_alert(
    connection: Connection, keeper: Keeper
) -> None:
    """A storm is two alerts, not a hundred thousand; and nothing of it is left out."""
    await try_credential(connection, "token", reason="used-up")
    await keeper.step()
    for number in range(20):
        await try_credential(connection, f"token-{number % 4}", reason="used-up")
    await keeper.step()
    await keeper.step()
    assert len(await alerts(connection)) == 1

    await later(connection)
    await keeper.step()
    await later(connection)
    await keeper.step()
    await keeper.close(is_idle=True)
    first, second = await alerts(connection)
    assert (first["refusals"], second["refusals"], second["subjects"]) == (1, 20, 4)
    assert len(second["examples"]) == 4


async def test_a_tenants_alert_has_its_own_counts_only(
    connection: Connection, keeper: Keeper
) -> None:
    """A tenant's stream says nothing of the others."""
    for _ in range(3):
        await try_credential(connection, "a", reason="used-up", tenant="acme")
    await try_credential(connection, "b", reason="used-up", tenant="globex")
    await keeper.step()
    await keeper.close(is_idle=True)
    counts = {alert["tenant"]: alert["refusals"] for alert in await alerts(connection)}
    assert counts == {"acme": 3, "globex": 1}


async def test_a_reason_is_new_once(connection: Connection, options: Options) -> None:
    """The first of its kind is news, whoever keeps, and whichever tenant it is."""
    keeper = Keeper(options())
    await refuse(connection, 3, reason="expired")
    await keeper.step()
    await keeper.close(is_idle=True)
    keeper = Keeper(options())
    await refuse(connection, 2, reason="expired", tenant="acme")
    await refuse(connection, 1, reason="used-up")
    await keeper.step()
    await keeper.close(is_idle=True)
    found = await alerts(connection, "new-reason")
    assert [(a["refusal"], a["refusals"], a["tenant"]) for a in found] == [
        ("join-token:expired", 3, "root"),
        ("join-token:used-up", 1, "root"),
    ]


async def test_metrics_say_the_same_as_the_events(connection: Connection, keeper: Keeper) -> None:
    """Who watches metrics and no SIEM is told, too."""

    def counted(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, labels) or 0.0

    labels = {"attestor": "join-token", "reason": "used-up"}
    recorded = counted("watchword_refusals_recorded_total", **labels)
    before = counted("watchword_alerts_total", kind="used-up-credential")
    await refuse(connection, 7)
    await keeper.step()
    await keeper.close(is_idle=True)
    assert counted("watchword_refusals_recorded_total", **labels) == recorded + 7
    assert counted("watchword_alerts_total", kind="used-up-credential") == before + 1


async def test_a_storm_of_many_tenants_and_machines_makes_few_alerts(
    connection: Connection, keeper: Keeper
) -> None:
    """Whoever can make refusals must not be able to make alerts without end."""
    await connection.execute(
        "INSERT INTO refusals (type, attestor, reason, tenant, request_sha256, csr_sha256, hardware_key_sha256,"
        ' topic, "partition", "offset", worker, published, occurred_at, tried_sha256)'
        " SELECT 'refused', 'join-token', 'used-up', 'root', sha256(n::text::bytea), sha256(n::text::bytea),"
        " sha256((n % 500)::text::bytea), 't', 0, n, 'w', false, watchword.now(), sha256(n::text::bytea)"
        " FROM generate_series(1, 5000) AS n"
    )
    await keeper.step()
    await keeper.step()
    await keeper.close(is_idle=True)
    found = {alert["kind"]: alert for alert in await alerts(connection)}
    assert len(await alerts(connection)) == 2
    assert (found["many-credentials"]["subjects"], found["many-credentials"]["refusals"]) == (500, 5000)  # fmt: skip
    assert found["used-up-credential"]["subjects"] == 5000
    assert all(len(alert["examples"]) == 5 for alert in found.values())
