"""The console as a process of its own, used with a real browser: every page and every act, with data.

Pictures of all pages are left in `build/console`.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.support.browser import barriers, browsing, complaints, cut, needs_chromium, overflow
from tests.support.console_process import HOSTILE, OWN_KIND, Running, furnish, running_console
from tests.support.folders import ROOT
from tests.support.postgres import Databases
from watchword.handlers.operators.access import OperatorRole
from watchword.streams.console.problems import Told
from watchword.streams.console.site import wrong_page

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    needs_chromium,
]

PICTURES = ROOT / "build" / "console"
WIDTHS = {1280: 900, 390: 844}
LONG_NAME = "maximiliane.oberhauser-weissenbach@operations.example"

Visit = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Running]:
    async with (
        databases.migrated() as dsn,
        running_console(dsn, tmp_path_factory.mktemp("console")) as running,
    ):
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def furnished(console: Running) -> dict[str, str]:
    return await furnish(console)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with browsing() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def visit(console: Running, browser: Browser) -> AsyncGenerator[Visit]:
    opened: list[Page] = []

    async def come(
        role: OperatorRole = "admin",
        *,
        scope: str = "root",
        who: str = "ada",
        theme: str = "light",
        width: int = 1280,
    ) -> Page:
        context = await browser.new_context(
            viewport={"width": width, "height": WIDTHS[width]},
            color_scheme=theme,  # type: ignore[arg-type]  # one of the two
            base_url=console.url,
        )
        context.set_default_timeout(60_000)
        page = await context.new_page()
        opened.append(page)
        await page.goto(await console.link(role, scope, who))
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("heading", name="Overview").wait_for()
        return page

    yield come
    for page in opened:
        await page.context.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_page_can_be_read_by_everybody(
    console: Running, furnished: dict[str, str], visit: Visit, theme: str, width: int
) -> None:
    """On a telephone at night, with a keyboard, by ear: whoever is on call must be able to work."""
    page = await visit(theme=theme, width=width, who=LONG_NAME)
    said = complaints(page)
    PICTURES.mkdir(parents=True, exist_ok=True)
    pages = {
        "overview": "/",
        "waiting": "/waiting",
        "waiting-one": f"/waiting/{furnished['hostile']}",
        "nodes": "/nodes",
        "node": f"/nodes/{furnished['node']}",
        "commands": "/commands",
        "command": f"/commands/{furnished['command']}",
        "refusals": "/refusals",
        "refusals-grouped": "/refusals?group=reason",
        "refusals-by-key": "/refusals?group=hardware-key",
        "refusal": f"/refusals/{furnished['refusal']}",
        "attestors": "/attestors",
        "tokens": "/tokens",
        "audit": "/audit",
        "wrong": "/nodes/00000000-0000-7000-8000-000000000000",
    }

    found: dict[str, list[str]] = {}
    for name, path in pages.items():
        await page.goto(path)
        await page.screenshot(path=PICTURES / f"{name}-{theme}-{width}.png", full_page=True)
        found[name] = await barriers(page) + await cut(page)
        if by := await overflow(page):
            found[name].append(f"wider than the window by {by}")
    await page.context.clear_cookies()
    await page.goto("/sign-in")
    await page.screenshot(path=PICTURES / f"sign-in-{theme}-{width}.png")
    found["sign-in"] = await barriers(page)

    assert {name: what for name, what in found.items() if what} == {}
    assert said == []
    assert console.process.poll() is None


async def test_a_hostile_claim_is_shown_as_text(furnished: dict[str, str], visit: Visit) -> None:
    """Whoever looks at a machine's claims may let it in: the claims must not be able to act for them."""
    page = await visit()
    said = complaints(page)

    await page.goto(f"/waiting/{furnished['hostile']}")

    assert await page.get_by_text(HOSTILE).is_visible()
    assert await page.title() == "A join that waits · Watchword"
    assert said == []


async def test_joins_are_approved_together_by_keyboard(console: Running, visit: Visit) -> None:
    """An on-call engineer with one hand on a keyboard lets a rack in."""
    await console.bench.run("DELETE FROM join_requests")
    for name in ("k1", "k2", "k3"):
        await console.wait_in_line(name)
    page = await visit("approver")

    await page.goto("/waiting")
    boxes = page.get_by_role("checkbox")
    await boxes.nth(0).focus()
    await page.keyboard.press("Space")
    await boxes.nth(1).focus()
    await page.keyboard.press("Space")
    await page.get_by_label("Comment").fill("the new rack")
    await page.get_by_role("button", name="Approve").focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("status").wait_for()

    assert "Approved" in await page.get_by_role("status").inner_text()
    rows = await console.bench.fetch("SELECT state, comment, decided_by FROM join_requests")
    assert sorted(row["state"] for row in rows) == ["approved", "approved", "pending"]
    assert {row["decided_by"] for row in rows} == {"ada", None}

    await page.goto("/waiting")
    await page.get_by_role("link", name="Choose all on this page").click()
    assert await page.get_by_role("checkbox").is_checked()
    await page.get_by_label("Comment").fill("unknown")
    await page.get_by_role("button", name="Reject").click()
    await page.get_by_text("Nobody waits here").wait_for()


async def test_of_two_operators_one_is_told_that_the_other_was_first(
    console: Running, visit: Visit
) -> None:
    """They sit in different rooms, and look at the same machine."""
    await console.bench.run("DELETE FROM join_requests")
    request = await console.wait_in_line("contested")
    grace, ada = await visit("approver", who="grace"), await visit("approver", who="ada")
    await grace.goto("/waiting")
    await ada.goto("/waiting")

    await grace.get_by_role("checkbox").check()
    await grace.get_by_label("Comment").fill("stolen")
    await grace.get_by_role("button", name="Reject").click()
    await grace.get_by_role("status").wait_for()
    await ada.get_by_role("checkbox").check()
    await ada.get_by_role("button", name="Approve").click()
    await ada.get_by_role("heading", name="Nothing was done").wait_for()

    said = await ada.locator("main").inner_text()
    assert "is rejected already" in said
    assert "grace" in said
    assert "stolen" in said
    assert await barriers(ada) == []
    await ada.screenshot(path=PICTURES / "conflict-light-1280.png")
    assert await console.bench.one("SELECT state FROM join_requests") == "rejected"
    assert request in await ada.content()


async def test_nodes_are_found_and_changed(console: Running, visit: Visit) -> None:
    """A stolen machine is looked up by its serial, banned, and let back in when it turns up."""
    node = await console.join()
    serial = await console.bench.one(
        "SELECT encode(serial, 'hex') FROM node_certs WHERE node_id = $1::uuid", node
    )
    page = await visit()
    await page.goto("/nodes")

    await page.get_by_label("Known by").fill(str(serial))
    await page.get_by_label("Known by").press("Enter")
    await page.wait_for_url("**/nodes?named=**")
    await page.locator("#results tbody tr").first.wait_for()
    assert await page.locator("#results tbody tr").count() == 1
    await page.locator("#results tbody a").click()
    for verb, state in (("ban", "banned"), ("unban", "evicted"), ("retire", "retired")):
        await page.get_by_role("radio", name=verb, exact=False).first.check()
        await page.locator("form[action$='/change']").get_by_label("Why").fill("a drill")
        await page.get_by_role("button", name="Do it").click()
        await expect(page.locator("h1 .state")).to_have_text(state, timeout=60_000)
    grant = page.locator("form[action$='/reclaim']")
    await grant.get_by_label("What is proven").fill("ek")
    await grant.get_by_label("Its value").fill("ab" * 32)
    await grant.get_by_label("Why").fill("repaired")
    await grant.get_by_role("button", name="Grant it").click()
    await page.get_by_role("button", name="Take back").click()
    await page.get_by_text("The grant is taken back").wait_for()

    events = await page.locator("section[aria-labelledby=events]").inner_text()
    for act in (
        "node.ban",
        "node.unban",
        "node.retire",
        "node.reclaim.grant",
        "certificate revoked",
    ):
        assert act in events


async def test_a_node_is_told_something_and_it_is_called_off(
    console: Running, visit: Visit
) -> None:
    """The wrong machine was meant to be wiped; nobody sees what the command says, and it ends before the node asks."""
    node = await console.join()
    page = await visit()
    await page.goto(f"/nodes/{node}")

    form = page.locator("form[action='/commands']")
    await form.get_by_label("Kind").select_option(OWN_KIND)
    await form.get_by_label("Why").fill("returned")
    await form.get_by_label("standard input").fill("correct-horse\nbattery")
    await form.get_by_role("button", name="Send it").click()
    await page.get_by_text("It waits until the node asks").wait_for()
    said = await console.bench.one("SELECT payload FROM node_command_payloads p JOIN node_commands m ON m.id = p.command_id"
                                   " WHERE m.node_id = $1::uuid", node)  # fmt: skip
    assert bytes(said) == b"correct-horse\nbattery"
    assert "correct-horse" not in await page.content()

    await page.goto(f"/nodes/{node}")
    await page.get_by_role("link", name="What it was told").click()
    await page.get_by_label("State").select_option("queued")
    await page.wait_for_url("**state=queued**")
    await page.get_by_role("link", name=f"Cancel the {OWN_KIND}").click()
    await page.get_by_label("Why").fill("wrong machine")
    await page.get_by_role("button", name="Cancel the command").click()
    await expect(page.locator("h1 .state")).to_have_text("cancelled", timeout=60_000)
    row = await console.bench.fetch(
        "SELECT state, enqueued_by FROM node_commands WHERE node_id = $1::uuid", node
    )
    assert [tuple(one) for one in row] == [("cancelled", "ada")]


@pytest.mark.usefixtures("furnished")
async def test_refusals_are_narrowed_by_following_them(visit: Visit, tmp_path: Path) -> None:
    """From a number in a table to every try of one machine takes two clicks, and the address keeps them."""
    page = await visit("viewer")
    await page.goto("/refusals")

    await page.get_by_label("Counted by").select_option("claimed hardware key")
    await page.wait_for_url("**group=hardware-key**")
    await page.locator("#results tbody a").first.click()
    await page.wait_for_url(re.compile("hardwareKey=[0-9a-f]{64}"))
    tries = await page.locator("#results tbody tr").count()
    async with page.expect_download() as started:
        await page.get_by_role("link", name="ocsf").click()
    download = await started.value
    file = tmp_path / "export"
    await download.save_as(file)

    assert tries == 4
    assert len(file.read_text().splitlines()) == 4
    await page.locator("#results tbody a").first.click()
    await page.get_by_text("What to do:").wait_for()


async def test_a_token_is_made_shown_once_and_revoked(console: Running, visit: Visit) -> None:
    """Tokens are the first thing that anybody makes."""
    page = await visit()
    await page.goto("/tokens")

    made = page.locator("form[action='/tokens']", has=page.get_by_role("heading", name="Make one"))
    await made.get_by_label("Tenant").fill("acme")
    await made.get_by_label("Pool").fill("web")
    await made.get_by_label("Uses").fill("3")
    await made.get_by_role("button", name="Make it").click()
    secret = page.get_by_label("The token")
    await secret.wait_for()
    text = await secret.input_value()
    assert await secret.evaluate("input => input.scrollWidth <= input.clientWidth")
    await page.goto("/tokens")
    assert text.rpartition(".")[2] not in await page.content()
    name = text.split(".")[1]
    await page.get_by_role("button", name=f"Revoke token {name}").click()
    await page.get_by_text("Revoked.").wait_for()

    revoked = await console.bench.one("SELECT revoked_at FROM tokens WHERE id = $1", name)
    assert revoked is not None


async def test_a_list_that_cannot_be_refreshed_is_not_shown_as_new(visit: Visit) -> None:
    """A page that refreshes itself and fails in silence shows yesterday's fleet as today's."""
    page = await visit("viewer")
    await page.goto("/nodes")
    away = wrong_page(Told(503, "PostgreSQL is away; nothing was half done."), again="/nodes")

    async def answer(route: Route) -> None:
        if route.request.headers.get("hx-request") == "true":
            await route.fulfill(
                status=503, body=bytes(away.body), headers={"Content-Type": "text/html"}
            )
        else:
            await route.continue_()

    await page.route("**/nodes?**", answer)
    await page.get_by_label("Pool").fill("web")
    await page.get_by_label("Pool").press("Enter")

    await page.get_by_role("heading", name="Away for the moment").wait_for()
    assert await page.locator("#results").count() == 0
    await page.get_by_role("link", name="Try again").click()
    await page.locator("#results").wait_for()


async def test_signing_out_ends_the_session(visit: Visit) -> None:
    """A shared screen must not stay an operator's."""
    page = await visit("viewer")

    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("heading", name="Sign in").wait_for()
    await page.goto("/nodes")

    assert "/sign-in?next=" in page.url
