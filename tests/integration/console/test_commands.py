"""Commands to nodes through the API and the pages: sent as the node was seen, cancelled once, and never shown again."""

from base64 import b64encode
from typing import Any

import pytest

from tests.support.arrivals import joins
from tests.support.joins import Bench
from tests.support.operators import API, Desks, desks, form_token, get, sends
from watchword.handlers.kinds import registry
from watchword.schemas.commands import MAX_PAYLOAD_BYTES
from watchword.streams.console.office import Office

pytestmark = pytest.mark.postgres

SAID = "the password is correct-horse"


async def joins_for(bench: Bench, *kinds: str) -> str:
    """Let a machine join that may be told these kinds; return its node's id."""
    token = await bench.token(allowed_kinds=list(kinds))
    [answer] = await bench.ask(bench.machine().request(token.payload))
    node: str = answer["joined"]["nodeId"]
    return node


async def said(bench: Bench) -> list[bytes]:
    """Return what the commands that wait say, oldest first."""
    rows = await bench.fetch("SELECT payload FROM node_command_payloads ORDER BY command_id")
    return [bytes(row["payload"]) for row in rows]


async def test_a_command_is_sent_found_and_cancelled_once(bench: Bench, console: Desks) -> None:
    """The one who sends and the one who stops it are two people, and look at the same fleet."""
    node, other = await joins(bench), await joins(bench)
    client = await console.client("admin", "acme")
    first = await sends(client, node, payload=SAID, version=1, expiresInS=3600)
    await sends(client, other, kind="diag.ping", payloadBase64=b64encode(b"\x00\xff").decode())
    cancel = f"{API}/commands/{first['id']}/cancel"

    found = {
        name: [row["id"] for row in (await get(client, "/commands", **query))["items"]]
        for name, query in {
            "node": {"node": node},
            "kind": {"kind": "logs.collect"},
            "other kind": {"kind": "disk.wipe"},
            "state": {"state": "done"},
            "all": {"state": "queued", "tenant": "acme"},
        }.items()
    }
    page = await get(client, "/commands", limit="1")
    after = await get(client, "/commands", limit="1", after=page["next"])
    stale = await client.post(cancel, json={"version": 2, "why": "?"})
    unsaid = await client.post(cancel, json={"why": " "})
    done = await client.post(cancel, json={"version": 1, "why": "wrong node"})
    again = await client.post(cancel, json={"why": "wrong node"})
    shown = await get(client, f"/commands/{first['id']}")

    assert await said(bench) == [b"\x00\xff"]
    assert (first["payloadBytes"], first["enqueuedBy"]) == (len(SAID), "token:admin-of-acme")
    assert found["node"] == found["kind"] == [first["id"]] == [page["items"][0]["id"]]
    assert (len(found["all"]), found["other kind"], found["state"]) == (2, [], [])
    assert after["items"][0]["nodeId"] == other
    assert (stale.status_code, unsaid.status_code, again.status_code) == (409, 400, 409)
    assert "has changed since it was seen" in stale.json()["detail"]
    assert done.json() == shown
    assert (shown["state"], shown["version"], shown["reason"]) == ("cancelled", 2, None)


async def test_what_a_command_says_is_shown_to_nobody(bench: Bench, console: Desks) -> None:
    """A disk's password goes to the machine, and not to whoever may look at the console."""
    node = await joins(bench)
    client, visitor = await console.client(), await console.visitor()
    token = form_token((await visitor.get("/")).text)
    form = {"node": node, "version": "1", "kind": "logs.collect", "hours": "1", "why": "?"}

    row = await sends(client, node, payload=SAID)
    sent = await visitor.post(
        "/commands", data=form | {"payload": f"{SAID}\r\n line", "form_token": token}
    )
    wrong = await visitor.post(
        "/commands", data=form | {"payload": SAID, "kind": "x", "form_token": token}
    )
    refused = await client.post(
        f"{API}/commands", json={"node": node, "kind": "x", "payload": SAID, "why": "?"}
    )
    texts = [sent.headers["Location"], wrong.text, refused.text, str(row)]
    for path in (f"/nodes/{node}", "/commands", f"/commands/{row['id']}", "/audit"):
        texts.append((await visitor.get(path)).text)
        texts.append((await client.get(API + path)).text)

    assert await said(bench) == [SAID.encode(), f"{SAID}\n line".encode()]
    assert (sent.status_code, wrong.status_code, refused.status_code) == (303, 400, 400)
    assert [text for text in texts if "correct-horse" in text] == []
    assert row["payloadSha256"] in texts[-3]


async def test_what_a_node_may_not_be_told_is_refused_and_on_record(
    bench: Bench, console: Desks
) -> None:
    """What is on the certificate counts, whoever asks: also for an admin of the whole deployment."""
    node = await joins_for(bench, "diag.*")
    silent = await joins_for(bench)
    client, visitor = await console.client(), await console.visitor()
    page = (await visitor.get(f"/nodes/{node}")).text
    form = {"version": "1", "kind": "disk.wipe", "hours": "24", "why": "?"}
    form |= {"node": node, "form_token": form_token(page)}

    by_program = await client.post(
        f"{API}/commands", json={"node": node, "kind": "disk.wipe", "why": "?"}
    )
    by_form = await visitor.post("/commands", data=form)

    assert "<option>diag.ping</option>" in page
    assert "disk.wipe" not in page
    assert "It can be told nothing now" in (await visitor.get(f"/nodes/{silent}")).text
    for answer in (by_program, by_form):
        assert answer.status_code == 403
        assert "its certificate does not allow disk.wipe" in answer.text
    assert "is on record" in by_form.text
    states = [(row["state"], row["reason"]) for row in (await get(client, "/commands"))["items"]]
    assert states == [("refused", "not-allowed")] * 2
    assert await said(bench) == []


async def test_what_cannot_be_sent_is_said_and_nothing_waits(bench: Bench, console: Desks) -> None:
    """A command that was misread would be run by a machine."""
    node = await joins(bench)
    client, visitor = await console.client(), await console.visitor()
    token = form_token((await visitor.get("/")).text)
    body: dict[str, Any] = {"node": node, "kind": "diag.ping", "why": "?"}
    form = {"node": node, "version": "1", "kind": "diag.ping", "hours": "24", "why": "?"}
    large = "x" * MAX_PAYLOAD_BYTES

    wrong: list[tuple[int, dict[str, Any]]] = [
        (400, {"kind": "wipe"}),
        (400, {"why": " "}),
        (400, {"node": "x"}),
        (400, {"payloadBase64": "AA=A"}),
        (400, {"payloadBase64": "\N{DEGREE SIGN}A=="}),
        (400, {"payload": "a", "payloadBase64": "YQ=="}),
        (400, {"payload": large + "x"}),
        (400, {"payload": large[1:] + "\N{EURO SIGN}"}),
        (400, {"expiresInS": 0}),
        (400, {"expiresInS": 31 * 86_400}),
        (409, {"version": 7}),
        (404, {"node": "00000000-0000-7000-8000-000000000000"}),
    ]
    for status, more in wrong:
        answer = await client.post(f"{API}/commands", json=body | more)
        assert answer.status_code == status, (more, answer.text)
    for status, changed in (
        (400, {"kind": "wipe"}),
        (400, {"why": " "}),
        (400, {"node": "x"}),
        (400, {"hours": "25"}),
        (400, {"version": ""}),
        (400, {"payload": large}),
        (409, {"version": "7"}),
        (403, {"form_token": "x"}),
    ):
        data = form | {"form_token": token} | changed
        answer = await visitor.post("/commands", data=data)
        assert answer.status_code == status, (changed, answer.text)
    assert (await visitor.get("/commands?state=unheard")).status_code == 400
    assert await bench.one("SELECT count(*) FROM node_commands") == 0


async def test_a_command_is_cancelled_as_it_was_seen(bench: Bench, console: Desks) -> None:
    """Between the page and the button the node may have asked, and then it is too late to say never."""
    node = await joins(bench)
    command = (await sends(await console.client(), node))["id"]
    visitor, path = await console.visitor(who="grace"), f"/commands/{command}"
    page = (await visitor.get(path)).text
    form = {"version": "1", "why": "wrong node", "form_token": form_token(page)}
    await bench.run("UPDATE node_commands SET version = 2")

    unseen = await visitor.post(f"{path}/cancel", data=form)
    foreign = await visitor.post(f"{path}/cancel", data=form | {"form_token": "x", "version": "2"})
    done = await visitor.post(f"{path}/cancel", data=form | {"version": "2"})
    after = (await visitor.get(done.headers["Location"])).text

    assert 'name="version" value="1"' in page
    assert (unseen.status_code, foreign.status_code, done.status_code) == (409, 403, 303)
    assert "Cancelled. It is handed out no more." in after
    assert "Cancel the command" not in after
    who = "SELECT who FROM audit_log WHERE action = 'node.command.cancel'"
    assert await bench.one(who) == "grace"


async def test_a_deployments_own_kinds_are_known_here_too(
    bench: Bench, console: Desks, database: str
) -> None:
    """What the command line takes for tokens and commands, the console and programs must take."""
    node = await joins(bench)
    kinds = registry(["backup.run"])
    office = Office(database=console.database, cluster="test", kinds=kinds)
    body = {"node": node, "kind": "backup.run", "why": "?"}
    token = {"tenant": "acme", "pool": "web", "allowedKinds": ["backup.*"]}

    unknown = await (await console.client()).post(f"{API}/commands", json=body)
    async with desks(database, office=office) as deployment:
        client, visitor = await deployment.client(), await deployment.visitor()
        sent = await client.post(f"{API}/commands", json=body)
        made = await client.post(f"{API}/tokens", json=token)
        page = (await visitor.get(f"/nodes/{node}")).text

    assert unknown.status_code == 400
    assert (sent.status_code, made.status_code) == (200, 200)
    assert "<option>backup.run</option>" in page
