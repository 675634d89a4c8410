"""The command line, as processes of their own, on a real PostgreSQL."""

import asyncio
import json
import signal
import subprocess
import sys

import asyncpg
import pytest

from tests.support.commands import Command, result
from watchword.handlers.attestors.join_token.evidence import parse_token

pytestmark = pytest.mark.postgres


def test_role_of_an_attestors_own_sql_is_made_once(watchword: Command) -> None:
    """An operator runs it before the worker, and may run it again; an id that can be none is a usage error."""
    made = result(watchword("db", "attestor-role", "acme-asset", "--json"))
    again = result(watchword("db", "attestor-role", "acme-asset", "--json"))

    assert made == again
    assert (made["attestor"], made["role"]) == ("acme-asset", "plg_acme_asset")
    watchword("db", "attestor-role", "Acme; DROP TABLE nodes", code=2)
    watchword("db", "attestor-role", "a" * 60, code=2)


def test_an_operators_day(watchword: Command) -> None:
    """From an empty database to a token that is in a machine's hands, and gone again."""
    watchword("tenants", "create", "acme", "--why", "a customer")
    watchword("pools", "create", "acme", "gpu")
    watchword("sites", "create", "acme", "berlin")
    created = result(
        watchword("tokens", "create", "acme", "gpu", "--site", "berlin", "--uses", "3",
                  "--kind", "logs.*", "--expect", "serial=A1", "--json")
    )  # fmt: skip
    token = parse_token(created["token"])

    assert created["id"] == token.id
    assert "secretSha256" not in created
    (listed,) = result(watchword("tokens", "list", "--json"))["items"]
    assert (listed["usesLeft"], listed["allowedKinds"]) == (3, ["logs.*"])
    assert listed["expect"] == '{"serial": "A1"}' or listed["expect"] == {"serial": "A1"}

    watchword("tokens", "revoke", token.id)
    watchword("tokens", "revoke", token.id, code=4)
    watchword("tenants", "delete", "acme", code=4)
    assert result(watchword("nodes", "list", "--json"))["items"] == []
    assert result(watchword("refusals", "list", "--json"))["items"] == []


def test_the_secret_stands_once_on_standard_output(watchword: Command) -> None:
    """Standard error goes to log stores, and `tail -n1` has to find it."""
    watchword("tenants", "create", "acme")
    watchword("pools", "create", "acme", "gpu")
    done = watchword("tokens", "create", "acme", "gpu")

    parse_token(done.stdout.splitlines()[-1])
    assert done.stdout.count("ww1.") == 1
    assert "ww1." not in done.stderr
    for made, head in (
        (watchword("images", "create", "acme", "gpu"), "wi1."),
        (watchword("operators", "create", "ci"), "wo1."),
    ):
        assert made.stdout.splitlines()[-1].startswith(head)
        assert made.stdout.count(head) == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["pools", "create", "nobody", "gpu"], 3),
        (["nodes", "show", "01a22979-a0f9-73cb-8927-bcd853564286"], 3),
        (["nodes", "show", "seven"], 2),
        (["tenants", "create", "root"], 4),
        (["tenants", "create", "Not A Label"], 2),
        (["topics", "plan"], 2),
        (["db", "status"], 0),
    ],
)
def test_exit_codes_say_what_went_wrong(
    watchword: Command, arguments: list[str], code: int
) -> None:
    """And standard output stays empty when nothing came of it."""
    done = watchword(*arguments, code=code)

    assert bool(done.stdout) == (code == 0)
    assert bool(done.stderr) == (code != 0)


def test_a_database_that_is_away_is_69(watchword: Command, environment: dict[str, str]) -> None:
    """A script may try again, which it must not for an error of its own."""
    environment["DATABASE_URL"] = "postgres://nobody:hunter2@127.0.0.1:1/x"

    done = watchword("nodes", "list", code=69)

    assert "hunter2" not in done.stderr + done.stdout


def test_the_configuration_shows_where_each_value_is_from(
    watchword: Command, environment: dict[str, str]
) -> None:
    """`Why does it use that?` is the first question of every incident."""
    environment["DATABASE_URL"] = "postgres://u:hunter2@h/d"
    done = watchword("config", "show", "--redacted", "--json")
    items = {item["name"]: item for item in result(done)["items"]}

    assert "hunter2" not in done.stdout + done.stderr
    assert items["database.url"]["source"] == "variable DATABASE_URL"
    assert items["relay.idle_ms"]["source"] == "default"


def test_keys_are_made_once(watchword: Command) -> None:
    """A second `init` with new keys would lock out every agent that pinned the first."""
    first = result(watchword("keys", "init", "--trust-domain", "example.org", "--json"))
    second = result(watchword("keys", "init", "--trust-domain", "example.org", "--json"))

    assert first == second
    assert watchword("keys", "pin").stdout.strip() == first["pin"]
    watchword("keys", "init", "--trust-domain", "other.org", code=4)


def test_the_doctor_fails_for_what_is_missing(
    watchword: Command, environment: dict[str, str]
) -> None:
    """Everything it can still look at is looked at all the same."""
    environment["KAFKA_BOOTSTRAP_SERVERS"] = "127.0.0.1:1"
    found = result(watchword("doctor", "--json", code=1))["items"]
    levels = {item["check"]: item["level"] for item in found}

    assert levels["schema"] == levels["time limits"] == levels["clock"] == "ok"
    assert levels["kafka"] == levels["keys"] == levels["signer"] == "fail"


def test_a_process_stops_on_the_first_signal(environment: dict[str, str]) -> None:
    """Whoever deploys it sends SIGTERM, and expects 0."""
    environment |= {"WATCHWORD_KEEPER__HEALTH_PORT": "0", "LOG_FORMAT": "json"}
    with subprocess.Popen(
        [sys.executable, "-m", "watchword.streams.cli", "keeper"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if json.loads(line)["event"] == "keeper started":
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


async def test_the_tail_shows_refusals_as_they_come_until_it_is_interrupted(
    database: str, environment: dict[str, str]
) -> None:
    """The security team has it when the SIEM is down."""
    connection = await asyncpg.connect(database)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "watchword.streams.cli", "refusals", "tail", "--output", "jsonl",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"following" in await process.stderr.readline()
        await connection.execute(
            "INSERT INTO watchword.refusals (type, attestor, reason, tenant, request_sha256, topic,"
            ' partition, "offset", worker, published, occurred_at)'
            " VALUES ('refused', 'join-token', 'expired', 'root', sha256('x'), 't', 0, 0, 'w', true, now())"
        )

        found = json.loads(await process.stdout.readline())
        process.send_signal(signal.SIGINT)

        assert (found["reason"], found["tenant"]) == ("expired", "root")
        assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await connection.close()
