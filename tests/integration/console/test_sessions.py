"""Sessions of the console without a browser: who is let in, until when, and whose forms act with them."""

import pytest

from tests.support.arrivals import waits
from tests.support.joins import Bench
from tests.support.operators import ADA, KEY, URL, Desks, form_token
from watchword.handlers.operators import api_tokens
from watchword.handlers.operators.sessions import create_link
from watchword.streams.console import session_cookies
from watchword.streams.console.session_cookies import SessionCookies

pytestmark = pytest.mark.postgres


def sign(key: bytes, text: str) -> str:
    """Return the signature of a cookie's text."""
    return SessionCookies(key, is_secure=False)._sign(session_cookies._COOKIE, text)


async def test_a_link_lets_one_person_in_once_and_only_by_its_form(
    bench: Bench, console: Desks
) -> None:
    """Chat programs look at links for a preview; that must not use them up, and a second reader must stay outside."""
    link = await create_link(console.database, ADA, who="grace", scope="root", role="viewer")
    client = console.bare({"Origin": URL})

    looked = [await client.get("/sign-in", params={"link": link}) for _ in range(3)]
    first = await client.post("/sign-in", data={"link": link})
    second = await console.bare({"Origin": URL}).post("/sign-in", data={"link": link})

    assert {one.status_code for one in looked} == {200}
    assert first.status_code == 303
    cookie = first.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "grace" in (await client.get("/")).text
    assert second.status_code == 403
    assert "was used" in second.text
    assert await bench.one("SELECT who FROM audit_log WHERE action = 'session.opened'") == "grace"


async def test_forged_stolen_and_expired_sessions_open_nothing(
    bench: Bench, console: Desks
) -> None:
    """A cookie is the whole key to the console."""
    visitor = await console.visitor()
    (cookie,) = visitor.cookies.jar
    text, _, signature = (cookie.value or "").rpartition(".")
    assert (await visitor.get("/nodes")).status_code == 200
    head, name, secret = text.split(".")
    made_up = f"{head}.{name}.{secret[:-2]}" + ("AA" if secret[-2:] != "AA" else "QQ")

    for value in (
        "",
        "x",
        text,
        f"{text}.{signature[:-1]}A",
        f"{text}x.{signature}",
        f"{made_up}.{sign(KEY, made_up)}",
        f"{text}.{sign(b'o' * 32, text)}",
    ):  # fmt: skip
        answer = await console.bare({"Cookie": f"watchword={value}"}).get("/nodes")
        assert answer.status_code == 303, value
        assert answer.headers["Location"] == "/sign-in?next=%2Fnodes"
    await bench.run("UPDATE operator_sessions SET expires_at = now() - interval '1 second'")
    assert (await visitor.get("/nodes")).status_code == 303
    acted = await visitor.post("/waiting/decide", data={"seen": "x", "decision": "approve"})
    assert acted.status_code == 401
    assert "Nothing was done" in acted.text


async def test_a_session_ends_with_its_token_and_with_signing_out(
    bench: Bench, console: Desks
) -> None:
    """Who is shown the door must not sit at an open page for another twelve hours."""
    text = await console.token("viewer")
    client = console.bare({"Origin": URL})
    assert (await client.post("/sign-in", data={"token": "wo1.wrong"})).status_code == 403
    assert (await client.post("/sign-in", data={"token": text})).status_code == 303
    page = await client.get("/")
    assert "token:viewer-of-root" in page.text

    await api_tokens.revoke_api_token(console.database, ADA, text.split(".")[1])
    assert (await client.get("/")).status_code == 303

    visitor = await console.visitor()
    cookie = dict(visitor.cookies)
    refused = await visitor.post("/sign-out", data={"form_token": "wrong"})
    assert refused.status_code == 403
    page = await visitor.get("/")
    await visitor.post("/sign-out", data={"form_token": form_token(page.text)})
    stale = console.bare({"Cookie": f"watchword={cookie['watchword']}"})
    assert (await stale.get("/")).status_code == 303
    assert await bench.one("SELECT count(*) FROM operator_sessions") == 1


async def test_a_form_of_somebody_else_does_nothing(bench: Bench, console: Desks) -> None:
    """A page on the web must not approve machines with an operator's cookie."""
    seen = await waits(bench)
    visitor, other = await console.visitor(), await console.visitor(who="mallory")
    chosen = f"{seen['id']}:{seen['version']}"
    own = form_token((await visitor.get("/waiting")).text)
    theirs = form_token((await other.get("/waiting")).text)
    act = {"seen": chosen, "decision": "approve", "form_token": own}

    for headers, data in (
        ({}, act | {"form_token": ""}),
        ({}, act | {"form_token": theirs}),
        ({"Origin": "https://evil.example"}, act),
        ({"Origin": "null"}, act),
        ({"Sec-Fetch-Site": "cross-site"}, act),
        ({"Sec-Fetch-Site": "same-site"}, act),
    ):
        answer = await visitor.post("/waiting/decide", data=data, headers=headers)
        assert answer.status_code == 403, (headers, answer.text)
        assert "nothing was done" in answer.text
    no_form = await visitor.post("/waiting/decide", json=act)
    assert no_form.status_code == 400
    assert (await visitor.get("/waiting/decide", params=act)).status_code in {400, 405}
    assert await bench.one("SELECT state FROM join_requests") == "pending"

    assert (await visitor.post("/waiting/decide", data=act)).status_code == 303
    assert await bench.one("SELECT decided_by FROM join_requests") == "ada"


async def test_nobody_is_sent_elsewhere_after_signing_in(bench: Bench, console: Desks) -> None:
    """A link to the real console that ends at a copy of it is how passwords are stolen."""
    del bench
    for then, leads in (
        ("/nodes?state=active", "/nodes?state=active"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
    ):
        link = await create_link(console.database, ADA, who="ada", scope="root", role="viewer")
        client = console.bare({"Origin": URL})
        answer = await client.post("/sign-in", data={"link": link, "next": then})
        assert answer.headers["Location"] == leads
