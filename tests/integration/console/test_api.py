"""`/api/v1`: the same operations as on the command line, for whoever a token lets in, as far as it lets them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.arrivals import joins, waits
from tests.support.joins import Bench
from tests.support.operators import ADA, API, Desks, desks, get, sends
from watchword.handlers.operators import api_tokens
from watchword.handlers.operators.refusals import Reasons
from watchword.handlers.store.rebuild import check
from watchword.streams.console.api.catalogue import OPERATIONS

pytestmark = pytest.mark.postgres


async def test_what_waits_is_looked_at_and_decided_once(bench: Bench, console: Desks) -> None:
    """Two operators may mean opposite things; the second must be told that there was a first."""
    seen = await waits(bench)
    client = await console.client("approver", "acme")

    (row,) = (await get(client, "/requests"))["items"]
    shown = await get(client, f"/requests/{row['id']}")
    first = await client.post(f"{API}/requests/approve", json={"requests": [seen]})
    second = await client.post(f"{API}/requests/reject", json={"requests": [seen], "comment": "no"})

    assert shown["grants"]["tenant"] == "acme"
    assert shown["unprovenClaims"] == {"claimedMood": "good"}
    assert (first.status_code, first.json()["items"][0]["state"]) == (200, "approved")
    assert (second.status_code, second.json()["type"]) == (409, "urn:watchword:problem:conflict")
    assert "has changed since it was seen" in second.json()["detail"]
    assert await bench.one("SELECT decided_by FROM join_requests") == "token:approver-of-acme"


async def test_what_is_outside_a_tenant_does_not_exist(bench: Bench, console: Desks) -> None:
    """A tenant's operator must not even learn that another tenant has a node."""
    request = await waits(bench)
    node, token = await joins(bench), (await bench.token()).id
    await bench.run('INSERT INTO refusals (type, attestor, reason, tenant, request_sha256, topic, partition, "offset", worker,'
                    " published, occurred_at) VALUES ('refused', 'x', 'y', 'acme', sha256('r'), 't', 0, 0, 'w', true, now())")  # fmt: skip
    refusal = await bench.one("SELECT id FROM refusals")
    command = (await sends(await console.client("admin", "acme"), node))["id"]
    acts = "SELECT count(*) FROM audit_log WHERE who LIKE 'token:%'"
    assert await bench.one(acts) == 1
    client = await console.client("admin", "other")
    missing = "00000000-0000-7000-8000-000000000000"
    change = {"nodes": [{"id": node}], "why": "mine"}
    grant = {"attestor": "tpm", "kind": "ek", "value": "00", "why": "mine"}

    for method, path, body in (
        ("GET", f"/nodes/{node}", None),
        ("GET", f"/nodes/{node}/reclaims", None),
        ("GET", f"/requests/{request['id']}", None),
        ("GET", f"/refusals/{refusal}", None),
        ("GET", f"/commands/{command}", None),
        ("GET", "/commands?tenant=acme", None),
        ("GET", "/nodes?tenant=acme", None),
        ("GET", "/requests?tenant=acme", None),
        ("GET", "/tokens?tenant=acme", None),
        ("GET", "/refusals?tenant=acme", None),
        ("GET", "/refusals/top?tenant=acme", None),
        ("GET", "/refusals/export?tenant=acme", None),
        ("GET", "/overview?tenant=acme", None),
        ("GET", "/bans", None),
        ("GET", "/audit", None),
        ("POST", "/requests/approve", {"requests": [request]}),
        ("POST", "/requests/reject", {"requests": [request], "comment": "no"}),
        ("POST", "/nodes/evict", change),
        ("POST", "/nodes/retire", change),
        ("POST", "/nodes/delete", change),
        ("POST", "/nodes/ban", change),
        ("POST", "/nodes/unban", change),
        ("POST", f"/nodes/{node}/reclaims", grant),
        ("POST", "/commands", {"node": node, "kind": "disk.wipe", "why": "mine"}),
        ("POST", f"/commands/{command}/cancel", {"why": "mine"}),
        ("POST", "/tokens", {"tenant": "acme", "pool": "web"}),
        ("POST", f"/tokens/{token}/revoke", {}),
        ("POST", "/bans/add", {"subjects": [{"kind": "ek", "value": "00"}], "why": "mine"}),
    ):  # fmt: skip
        answer = await client.request(method, API + path, json=body)
        assert answer.status_code == 404, (path, answer.text)
    theirs = (await client.get(f"{API}/nodes/{node}")).json()
    nobodys = (await client.get(f"{API}/nodes/{missing}")).json()
    assert json.dumps(theirs).replace(node, missing) == json.dumps(nobodys)
    for path in ("/nodes", "/requests", "/tokens", "/commands", "/refusals", "/refusals/top"):
        assert (await get(client, path))["items"] == []
    assert (await get(client, "/commands", node=node))["items"] == []
    assert (await get(client, "/overview"))["nodes"] == {}
    assert await bench.one(acts) == 1


async def test_a_role_does_what_it_may_and_nothing_more(bench: Bench, console: Desks) -> None:
    """Whoever looks after the waiting room must not be able to delete the fleet."""
    request = await waits(bench)
    node, token = await joins(bench), (await bench.token()).id
    command = (await sends(await console.client(), node))["id"]
    change = {"nodes": [{"id": node}], "why": "?"}
    decisions = [("/requests/approve", {"requests": [request]})]
    administration = [
        ("/nodes/evict", change),
        ("/nodes/retire", change),
        ("/nodes/delete", change),
        ("/nodes/ban", change),
        ("/nodes/unban", change),
        (f"/nodes/{node}/reclaims", {"attestor": "tpm", "kind": "ek", "value": "00", "why": "?"}),
        ("/commands", {"node": node, "kind": "disk.wipe", "why": "?"}),
        (f"/commands/{command}/cancel", {"why": "?"}),
        ("/tokens", {"tenant": "acme", "pool": "web"}),
        (f"/tokens/{token}/revoke", {}),
        ("/bans/add", {"subjects": [{"kind": "ek", "value": "00"}], "why": "?"}),
        ("/bans/remove", {"subjects": [{"kind": "ek", "value": "00"}], "why": "?"}),
    ]
    viewer, approver = await console.client("viewer"), await console.client("approver")

    for client, paths in ((viewer, decisions + administration), (approver, administration)):
        for path, body in paths:
            answer = await client.post(API + path, json=body)
            assert answer.status_code == 403, (path, answer.text)
    for one in OPERATIONS:
        if one.method == "GET" and "{" not in one.path:
            assert (await viewer.get(API + one.path)).status_code == 200, one.path
    assert (await approver.post(f"{API}{decisions[0][0]}", json=decisions[0][1])).is_success
    assert await bench.one("SELECT state FROM nodes WHERE id = $1::uuid", node) != "deleted"


async def test_a_node_is_found_by_whatever_names_it_and_changed_as_it_was_seen(
    bench: Bench, console: Desks
) -> None:
    """An operator has a serial from a log, or half an id from a screen, and not the key of a table."""
    node = await joins(bench)
    await joins(bench)
    client = await console.client()
    (certificate,) = await bench.fetch("SELECT * FROM node_certs WHERE node_id = $1::uuid", node)
    token = await bench.one("SELECT token_id FROM nodes WHERE id = $1::uuid", node)

    for name in (
        node,
        node[:30],
        certificate["serial"].hex(),
        certificate["csr_sha256"].hex(),
        token,
    ):
        assert [row["id"] for row in (await get(client, "/nodes", named=name))["items"]] == [node]
    assert (await get(client, "/nodes", named="nobody"))["items"] == []
    shown = await get(client, f"/nodes/{node}")
    body = {"nodes": [{"id": node, "version": shown["version"]}], "why": "sold"}
    first = await client.post(f"{API}/nodes/evict", json=body)
    second = await client.post(f"{API}/nodes/retire", json=body)
    assert first.json()["items"][0]["state"] == "evicted"
    assert second.status_code == 409
    banned = await client.post(f"{API}/nodes/ban", json={"nodes": [{"id": node}], "why": "thief"})
    assert banned.json()["items"][0]["state"] == "banned"
    assert (await get(client, "/bans"))["items"] != []


async def test_pages_follow_each_other_to_the_end(bench: Bench, console: Desks) -> None:
    """A script that reads page after page must see each row once."""
    nodes = sorted([await joins(bench) for _ in range(5)])
    client = await console.client()

    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await get(client, "/nodes", limit="2", **after)
        found += [row["id"] for row in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}

    assert found == nodes


async def test_refusals_are_listed_counted_and_exported(bench: Bench, console: Desks) -> None:
    """When the SIEM is down this is where the security team looks."""
    for _ in range(3):
        await bench.ask(bench.machine().request(b"nonsense"))
    client = await console.client("viewer")

    first = await get(client, "/refusals", limit="2")
    second = await get(client, "/refusals", limit="2", before=first["next"])
    rows = first["items"] + second["items"]
    shown = await get(client, f"/refusals/{rows[0]['eventId']}")
    (top,) = (await get(client, "/refusals/top", by="attestor"))["items"]
    export = await client.get(f"{API}/refusals/export", params={"format": "ocsf"})

    assert len({row["id"] for row in rows}) == 3
    assert (top["what"], top["recorded"]) == ("join-token", 3)
    assert shown["whatToDo"]
    assert [json.loads(line)["class_uid"] for line in export.text.splitlines()] == [3004] * 3
    assert Reasons().find(shown["attestor"], shown["reason"]).code == shown["code"]


@pytest.mark.usefixtures("bench")
async def test_tokens_are_made_shown_once_and_revoked(console: Desks) -> None:
    """A token's secret must be in this one answer and nowhere else."""
    client = await console.client("admin", "acme")
    made = await client.post(
        f"{API}/tokens",
        json={
            "tenant": "acme",
            "pool": "web",
            "expect": {"productUuid": "x"},
            "allowedKinds": None,
        },
    )
    assert made.status_code == 200, made.text
    row = made.json()

    listed = await get(client, "/tokens")
    revoked = await client.post(f"{API}/tokens/{row['id']}/revoke", json={"why": "lost"})

    assert row["token"].startswith("ww1.")
    assert row["expect"] == {"productUuid": "x"}
    assert "secretSha256" not in row
    assert row["token"].rpartition(".")[2] not in json.dumps(listed)
    assert revoked.json()["revokedAt"] is not None
    assert (await client.post(f"{API}/tokens/{row['id']}/revoke", json={})).status_code == 409
    assert (await client.post(f"{API}/tokens/ww1.secret/revoke", json={})).status_code == 400


async def test_only_a_token_that_stands_lets_anybody_in(bench: Bench, console: Desks) -> None:
    """What was revoked or has expired, or was made up, must open nothing."""
    text = await console.token()
    head, name, secret = text.split(".")
    swapped = secret[:-2] + ("AA" if secret[-2:] != "AA" else "QQ")

    for header in (
        {},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer ww1.x"},
        {"Authorization": f"Bearer {head}.{name}.{swapped}"},
        {"Authorization": f"Bearer {head}.{'a' * 16}.{secret}"},
    ):
        answer = await console.bare(header).get(f"{API}/nodes")
        assert answer.status_code == 401, header
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    good = console.bare({"Authorization": f"Bearer {text}"})
    assert (await good.get(f"{API}/nodes")).status_code == 200
    await bench.run("UPDATE operator_tokens SET expires_at = now() - interval '1 second'")
    assert (await good.get(f"{API}/nodes")).status_code == 401
    await bench.run("UPDATE operator_tokens SET expires_at = NULL")
    await api_tokens.revoke_api_token(console.database, ADA, name)
    assert (await good.get(f"{API}/nodes")).status_code == 401
    assert await bench.one("SELECT count(*) FROM journal WHERE type LIKE 'operator-token.%'") == 2
    dump = str(await bench.fetch("SELECT *, encode(secret_sha256, 'hex') FROM operator_tokens"))
    assert secret not in dump
    found = await check(console.database)
    assert found.problems == []
    assert [one for one in found.differences if one.table == "operator_tokens"] == []


async def test_what_cannot_be_used_gets_a_clear_answer_and_does_nothing(
    bench: Bench, console: Desks
) -> None:
    """A misspelt field that was passed over would be a filter that filters nothing."""
    client = await console.client()
    node = await joins(bench)
    huge = json.dumps({"nodes": [], "why": "x" * 2_000_000})
    json_type = {"Content-Type": "application/json"}

    for status, answer in (
        (400, await client.get(f"{API}/nodes", params={"tennant": "acme"})),
        (400, await client.get(f"{API}/nodes?state=active&state=banned")),
        (400, await client.get(f"{API}/nodes", params={"limit": "0"})),
        (400, await client.get(f"{API}/nodes", params={"named": "a\x00b"})),
        (400, await client.get(f"{API}/nodes/nothing")),
        (400, await client.get(f"{API}/refusals", params={"before": "9999-12-31,1"})),
        (400, await client.get(f"{API}/refusals", params={"since": "0001-01-01T00:00:00+14:00"})),
        (400, await client.post(f"{API}/nodes/evict", json={"nodes": [{"id": node}], "why": ""})),
        (400, await client.post(f"{API}/nodes/evict", content=b"{", headers=json_type)),
        (400, await client.post(f"{API}/nodes/evict", content=b'{"why":"\\ud800"}', headers=json_type)),
        (413, await client.post(f"{API}/nodes/evict", content=huge, headers=json_type)),
        (415, await client.post(f"{API}/nodes/evict", data={"why": "form"})),
        (405, await client.get(f"{API}/nodes/evict")),
        (405, await client.delete(f"{API}/nodes/{node}")),
        (404, await client.get(f"{API}/nothing")),
        (400, await client.get(f"{API}/nodes", headers={"Host": "evil.example"})),
    ):  # fmt: skip
        assert answer.status_code == status, answer.text
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["status"] == status
    assert await bench.one("SELECT state FROM nodes") == "adopting"


async def test_every_answer_is_as_it_is_described(bench: Bench, console: Desks) -> None:
    """Programs are written by the description; a field that is not there stops them."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - of this test

    node, seen = await joins(bench), await waits(bench)
    await bench.ask(bench.machine().request(b"nonsense"))
    refusal = await bench.one("SELECT id FROM refusals LIMIT 1")
    client = await console.client()
    document = (await console.bare().get(f"{API}/openapi.json")).json()
    change = {"nodes": [{"id": node}], "why": "?"}
    token = await client.post(f"{API}/tokens", json={"tenant": "acme", "pool": "web"})
    grant = {"attestor": "tpm", "kind": "ek", "value": "00", "why": "?"}
    granted = await client.post(f"{API}/nodes/{node}/reclaims", json=grant)
    ban = {"subjects": [{"kind": "ek", "value": "aa"}], "why": "?"}
    body = {"node": node, "kind": "diag.ping", "why": "?"}
    command = await client.post(f"{API}/commands", json=body)
    told: dict[str, Any] = {
        "/tokens POST": token,
        "/commands POST": command,
        "/nodes/{id}/reclaims POST": granted,
    }
    parts = {"/nodes/{id}": node, "/requests/{id}": seen["id"], "/refusals/{name}": refusal}
    parts |= {"/nodes/{id}/reclaims": node, "/commands/{id}": command.json()["id"]}
    bodies: dict[str, Any] = {
        f"/commands/{command.json()['id']}/cancel": {"why": "?"},
        "/requests/approve": {"requests": [seen]},
        "/requests/reject": {"requests": [seen | {"version": 2}], "comment": "no"},
        "/nodes/evict": change,
        "/nodes/ban": change,
        "/nodes/unban": change,
        "/nodes/retire": change,
        "/nodes/delete": change,
        "/bans/add": ban,
        "/bans/remove": ban,
        f"/tokens/{token.json()['id']}/revoke": {},
        f"/reclaims/{granted.json()['id']}/revoke": {},
    }
    for one in OPERATIONS:
        if one.method == "GET" and not one.is_lines:
            path = one.path.replace("{id}", "{}").replace("{name}", "{}")
            told[f"{one.path} GET"] = await client.get(API + path.format(parts.get(one.path)))
    for path, body in bodies.items():
        described = path
        for name in ("/tokens/", "/reclaims/", "/commands/"):
            if path.startswith(name):
                described = f"{name}{{id}}/{path.rpartition('/')[2]}"
        told[f"{described} POST"] = await client.post(API + path, json=body)

    assert len(told) == len(OPERATIONS) - 1
    for name, answer in told.items():
        path, _, method = name.partition(" ")
        described = document["paths"][API + path][method.lower()]["responses"]
        assert answer.status_code == 200, (name, answer.text)
        schema = described["200"]["content"]["application/json"]["schema"]
        errors = [
            error.message for error in Draft202012Validator(schema).iter_errors(answer.json())
        ]
        assert errors == [], name


async def test_without_postgresql_the_answer_says_so(console: Desks) -> None:
    """Half an answer, or a hanging one, would be read as none."""
    text = await console.token()

    async with desks("postgres://nobody@127.0.0.1:1/nothing") as gone:
        answer = await gone.bare({"Authorization": f"Bearer {text}"}).get(f"{API}/nodes")

    assert answer.status_code == 503
    assert "PostgreSQL is away" in answer.json()["detail"]
    assert answer.headers["Retry-After"] == "2"


async def test_a_day_is_what_an_unbounded_list_of_refusals_covers(
    bench: Bench, console: Desks
) -> None:
    """Partitions of a month must not be read because somebody forgot a filter."""
    await bench.ask(bench.machine().request(b"nonsense"))
    await bench.run("UPDATE refusals SET occurred_at = occurred_at - interval '25 hours'")
    client = await console.client("viewer")
    since = (datetime.now(UTC) - timedelta(days=2)).isoformat()

    assert (await get(client, "/refusals"))["items"] == []
    assert len((await get(client, "/refusals", since=since))["items"]) == 1
