"""Debian's Chromium, driven by Playwright, and what axe-core finds in its pages."""

import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not here")


@asynccontextmanager
async def browsing() -> AsyncGenerator[Browser]:
    """Give a browser without a window."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=os.getuid() != 0
        )
        try:
            yield browser
        finally:
            await browser.close()


def complaints(page: Page) -> list[str]:
    """Return a list that gathers what a page's scripts and policies complain of."""
    found: list[str] = []

    def told(message: ConsoleMessage) -> None:
        # A page that says no is no fault of the page.
        if message.type == "error" and "Failed to load resource" not in message.text:
            found.append(message.text)

    page.on("console", told)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


async def barriers(page: Page) -> list[str]:
    """Return what axe-core finds on a page, a line each; empty is good."""
    if not await page.evaluate("typeof axe !== 'undefined'"):
        script = resources.files("axe_playwright_python") / "axe.min.js"
        await page.evaluate(script.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = await page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)"
    )
    return [
        f"{one['id']} ({one['impact']}): {node['target']} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]


async def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    width: int = await page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


_CUT = """() => {
    const found = [...document.querySelectorAll('.scroll')]
        .filter(one => one.scrollWidth > one.clientWidth + 1)
        .map(one => `${one.getAttribute('aria-label')}: wider than its frame by ${one.scrollWidth - one.clientWidth}`)
    const parts = [...document.querySelectorAll('.top > .brand, .top nav li, .top .who > *')]
        .map(one => [one.innerText, one.getBoundingClientRect()])
    parts.forEach(([said, a], nth) => parts.slice(nth + 1).forEach(([other, b]) => {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
            found.push(`${said} is over ${other}`)
    }))
    return found
}"""


async def cut(page: Page) -> list[str]:
    """Return what of a page cannot be seen whole: tables that have to be pushed to and fro, and what lies over each other in its head."""
    found: list[str] = await page.evaluate(_CUT)
    return found
