"""The console's pages without a browser: what is shown to whom, what a form does, and what is said when it does not."""

import json
from uuid import UUID

import pytest

from tests.support.arrivals import joins, waits
from tests.support.doorman import asks
from tests.support.joins import Bench
from tests.support.operators import URL, Desks, desks, form_token, sends
from watchword.schemas.requests import Claims

pytestmark = pytest.mark.postgres

PAGES = ("/", "/waiting", "/nodes", "/commands", "/refusals", "/attestors", "/tokens", "/audit")


async def test_of_two_operators_the_second_is_told_plainly(bench: Bench, console: Desks) -> None:
    """The word conflict says nothing; who did what, and that nothing was done now, does."""
    seen, also = await waits(bench, "m1"), await waits(bench, "m2")
    grace, ada = await console.visitor(who="grace"), await console.visitor(who="ada")
    page = (await grace.get("/waiting")).text
    mine = (await ada.get("/waiting")).text
    await grace.post(
        "/waiting/decide",
        data={
            "seen": f"{seen['id']}:1",
            "decision": "reject",
            "comment": "not ours",
            "form_token": form_token(page),
        },
    )

    answer = await ada.post(
        "/waiting/decide",
        data={
            "seen": [f"{seen['id']}:1", f"{also['id']}:1"],
            "decision": "approve",
            "form_token": form_token(mine),
        },
    )

    assert answer.status_code == 409
    assert "is rejected already" in answer.text
    assert "grace" in answer.text
    assert "not ours" in answer.text
    assert "Nothing was done" in answer.text
    states = await bench.fetch("SELECT state FROM join_requests ORDER BY state")
    assert [row["state"] for row in states] == ["pending", "rejected"]


async def test_hostile_text_is_text(bench: Bench, console: Desks) -> None:
    """What a machine claims is read by somebody who may approve it."""
    machine = bench.machine()
    script = "<script>alert(1)</script>"
    await bench.ask(machine.request(b"web/m1", attestor="doorman", claims=Claims(serial=script)))
    facts = json.dumps({"name": "\u202egnp.exe", "claimed<b>": '"><img src=x>'})
    await bench.fetch("UPDATE join_requests SET facts = $1::jsonb", facts)
    request = await bench.one("SELECT id::text FROM join_requests")
    visitor = await console.visitor()

    for path in ("/waiting", f"/waiting/{request}"):
        page = (await visitor.get(path)).text
        assert script not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "\u202e" not in page
        assert "<img src=x" not in page
        assert "claimed<b>" not in page


async def test_every_answer_forbids_what_a_page_does_not_need(bench: Bench, console: Desks) -> None:
    """If text ever became markup, it should still be able to do nothing."""
    del bench
    visitor = await console.visitor()

    for path in (*PAGES, "/sign-in", "/nothing", "/api/v1/nodes", "/static/none"):
        headers = (await visitor.get(path)).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "no-store" in headers.get("Cache-Control", "no-store")
    page = (await visitor.get("/")).text
    assert " style=" not in page
    assert " onclick=" not in page
    assert "<script>" not in page


async def test_a_tenants_operator_sees_their_own_on_every_page(
    bench: Bench, console: Desks
) -> None:
    """The walls are the API's; a page must not have a door of its own."""
    node = await joins(bench)
    seen = await waits(bench)
    command = (await sends(await console.client(), node))["id"]
    visitor = await console.visitor(scope="other")

    assert (await visitor.get("/")).status_code == 200
    for path in (
        f"/nodes/{node}",
        f"/waiting/{seen['id']}",
        f"/commands/{command}",
        "/commands?tenant=acme",
        "/audit",
        "/nodes?tenant=acme",
        "/?tenant=acme",
    ):
        answer = await visitor.get(path)
        assert answer.status_code == 404, path
        assert "There is no such thing" in answer.text
    token = form_token((await visitor.get("/")).text)
    for path, data in (
        ("/waiting/decide", {"seen": f"{seen['id']}:1", "decision": "approve"}),
        (f"/nodes/{node}/change", {"verb": "evict", "version": "1", "why": "?"}),
        (f"/nodes/{node}/reclaim", {"attestor": "tpm", "kind": "ek", "value": "0", "hours": "24"}),
        (
            "/commands",
            {"node": node, "version": "1", "kind": "disk.wipe", "hours": "1", "why": "?"},
        ),
        (f"/commands/{command}/cancel", {"version": "1", "why": "?"}),
        ("/tokens", {"tenant": "acme", "pool": "web", "life": "24", "role": "node"}),
    ):
        answer = await visitor.post(path, data=data | {"form_token": token})
        assert answer.status_code == 404, (path, answer.text)
    for path in ("/nodes", "/commands", f"/commands?node={node}"):
        assert command not in (await visitor.get(path)).text
    assert node not in (await visitor.get("/nodes")).text
    assert await bench.one("SELECT count(*) FROM node_commands WHERE state = 'queued'") == 1
    assert await bench.one("SELECT count(*) FROM nodes WHERE state <> 'adopting'") == 0


async def test_a_viewer_is_shown_no_act_and_may_do_none(bench: Bench, console: Desks) -> None:
    """A button that answers "not allowed" teaches people to try."""
    node, seen = await joins(bench), await waits(bench)
    command = (await sends(await console.client(), node))["id"]
    visitor = await console.visitor("viewer")
    token = form_token((await visitor.get("/")).text)

    shown = (f"/waiting/{seen['id']}", f"/nodes/{node}", f"/commands/{command}")
    for path in ("/waiting", "/tokens", "/commands", *shown):
        page = (await visitor.get(path)).text
        assert page.count('method="post"') == 1, path  # signing out
    for path, data in (
        ("/waiting/decide", {"seen": f"{seen['id']}:1", "decision": "approve"}),
        (f"/nodes/{node}/change", {"verb": "evict", "version": "1", "why": "?"}),
        (
            "/commands",
            {"node": node, "version": "1", "kind": "disk.wipe", "hours": "1", "why": "?"},
        ),
        (f"/commands/{command}/cancel", {"version": "1", "why": "?"}),
        ("/tokens", {"tenant": "acme", "pool": "web", "life": "24", "role": "node"}),
    ):
        answer = await visitor.post(path, data=data | {"form_token": token})
        assert answer.status_code == 403, path
        assert "your" in answer.text


async def test_ten_thousand_waiting_joins_are_a_page(bench: Bench, console: Desks) -> None:
    """On the day of a new rack the page must open, and choosing must stay exact."""
    await bench.ask(asks(bench.machine()))
    await bench.run(
        "INSERT INTO join_requests (attestor, subject, csr_sha256, id, state, snapshot, tenant, pool, role, request_id,"
        " requested_at, expires_at, claims, facts) SELECT attestor, sha256(n::text::bytea), sha256(n::text::bytea),"
        " gen_random_uuid(), state, snapshot, tenant, pool, role, request_id, requested_at, expires_at, claims, facts"
        " FROM join_requests, generate_series(1, 9999) AS n"
    )
    visitor = await console.visitor()

    page = (await visitor.get("/waiting")).text
    chosen = (await visitor.get("/waiting?choose=all&limit=200")).text
    values = [part.partition('"')[0] for part in chosen.split('name="seen" value="')[1:]]
    done = await visitor.post(
        "/waiting/decide",
        data={"seen": values, "decision": "approve", "form_token": form_token(chosen)},
    )

    assert 'class="count">10000<' in page
    assert "<option>200</option>" in page
    assert page.count('name="seen"') == 20
    assert len(page) < 200_000
    assert len(values) == 200
    assert done.status_code == 303
    assert await bench.one("SELECT count(*) FROM join_requests WHERE state = 'approved'") == 200


async def test_a_join_is_found_by_the_fingerprint_that_its_agent_prints(
    bench: Bench, console: Desks
) -> None:
    """Of ten thousand that wait an operator wants the one whose technician is on the telephone."""
    for name in ("m1", "m2", "m3"):
        await waits(bench, name)
    rows = await bench.fetch("SELECT encode(csr_sha256, 'hex') AS digits FROM join_requests")
    digits = [str(row["digits"]) for row in rows]
    visitor = await console.visitor("viewer")
    copied = f" {digits[1][:4].upper()} {digits[1][4:8]}:{digits[1][8:12]} "

    page = (await visitor.get("/waiting", params={"csr": copied, "pool": "web"})).text
    other = (await visitor.get("/waiting", params={"csr": copied, "pool": "db"})).text
    wrong = await visitor.get("/waiting?csr=xyz")

    shown = page.replace(" ", "")
    assert [digit in shown for digit in digits] == [False, True, False]
    assert "Nobody waits here" in other
    assert wrong.status_code == 400
    assert "1 to 64 hexadecimal digits" in wrong.text


async def test_after_an_act_the_list_has_the_filters_that_it_had(
    bench: Bench, console: Desks
) -> None:
    """Who works through one tenant's rack wants the next page of it, and not everybody's; and to be sent nowhere else."""
    seen = [await waits(bench, name) for name in ("m1", "m2", "m3", "m4")]
    visitor = await console.visitor()
    page = (await visitor.get("/waiting?tenant=acme&limit=100&choose=all&done=rejected")).text
    back = page.partition('name="back" value="')[2].partition('"')[0].replace("&amp;", "&")
    assert back == "/waiting?tenant=acme&limit=100"
    act = {"decision": "approve", "form_token": form_token(page)}

    for one, said, leads in (
        (seen[0], back, "/waiting?tenant=acme&limit=100&done=approved"),
        (seen[1], "https://evil.example/waiting?x=y", "/waiting?x=y&done=approved"),
        (seen[2], "//evil.example", "/waiting?done=approved"),
        (seen[3], "", "/waiting?done=approved"),
    ):
        data = act | {"seen": f"{one['id']}:{one['version']}", "back": said}
        done = await visitor.post("/waiting/decide", data=data)
        assert done.headers["Location"] == leads


async def test_what_a_form_gets_wrong_is_said_and_nothing_is_done(
    bench: Bench, console: Desks
) -> None:
    """Half an act would be worse than none."""
    node, seen = await joins(bench), await waits(bench)
    visitor = await console.visitor()
    token = form_token((await visitor.get("/")).text)

    for path, data in (
        ("/waiting/decide", {"decision": "approve"}),
        ("/waiting/decide", {"seen": "x:1", "decision": "approve"}),
        ("/waiting/decide", {"seen": f"{seen['id']}:\N{ARABIC-INDIC DIGIT ONE}", "decision": "approve"}),
        ("/waiting/decide", {"seen": f"{seen['id']}:1", "decision": "delete"}),
        ("/waiting/decide", {"seen": f"{seen['id']}:1", "decision": "reject", "comment": " "}),
        (f"/nodes/{node}/change", {"verb": "explode", "version": "1", "why": "?"}),
        (f"/nodes/{node}/change", {"verb": "evict", "version": "1", "why": " "}),
        (f"/nodes/{node}/change", {"verb": "evict", "version": "", "why": "?"}),
        ("/tokens", {"tenant": "acme", "pool": "web", "uses": "0", "life": "24", "role": "node"}),
        ("/tokens", {"tenant": "acme", "pool": "web", "uses": "1", "life": "7", "role": "node"}),
        ("/tokens", {"tenant": "a\x00", "pool": "web", "uses": "1", "life": "24", "role": "node"}),
        ("/tokens/revoke", {"token": "x"}),
    ):  # fmt: skip
        answer = await visitor.post(path, data=data | {"form_token": token})
        assert answer.status_code == 400, (path, data, answer.text)
    stale = await visitor.post(
        f"/nodes/{node}/change",
        data={"verb": "evict", "version": "7", "why": "?", "form_token": token},
    )
    assert stale.status_code == 409
    assert "has changed since it was seen" in stale.text
    assert (await visitor.get("/nodes?limit=0")).status_code == 400
    assert (await visitor.get("/refusals?before=x")).status_code == 400
    assert await bench.one("SELECT count(*) FROM audit_log WHERE who = 'ada' AND action <> 'session.opened' AND action <> 'operator-link.created'") == 0  # fmt: skip


async def test_refusals_are_written_to_a_file_by_their_filters(
    bench: Bench, console: Desks
) -> None:
    """What is on the screen is what the colleague gets."""
    await bench.ask(bench.machine().request(b"nonsense"), bench.machine().request(b"other"))
    await bench.run(
        "UPDATE refusals SET reason = 'elsewhere' WHERE id = (SELECT min(id) FROM refusals)"
    )
    visitor = await console.visitor("viewer")

    answer = await visitor.get("/refusals/export?format=native&reason=elsewhere&period=1h")
    asked = await bench.one("SELECT request_id FROM refusals WHERE reason = 'elsewhere'")
    by_request = (await visitor.get("/refusals", params={"requestId": str(asked)})).text

    assert "attachment" in answer.headers["Content-Disposition"]
    (line,) = answer.text.splitlines()
    assert json.loads(line)["reason"] == "elsewhere"
    assert UUID(json.loads(line)["id"]).version == 7
    assert by_request.count('scope="row"') == 1
    assert f'name="requestId" value="{asked}"' in by_request


async def test_without_postgresql_there_is_a_page_that_says_so(console: Desks) -> None:
    """An operator who sees a blank page at night asks the wrong people."""
    visitor = await console.visitor()
    cookie = dict(visitor.cookies)["watchword"]

    async with desks("postgres://nobody@127.0.0.1:1/nothing") as gone:
        client = gone.bare({"Cookie": f"watchword={cookie}", "Origin": URL})
        for answer in (
            await client.get("/"),
            await client.post("/waiting/decide", data={"seen": "x"}),
            await client.post("/sign-in", data={"link": "wl1.aaaaaaaaaaaaaaaa." + "A" * 43}),
        ):
            assert answer.status_code == 503
            assert "PostgreSQL is away" in answer.text
            assert "nothing was half done" in answer.text
        looked = await client.get("/nodes?state=active")
        assert '<a href="/nodes?state=active">Try again</a>' in looked.text
