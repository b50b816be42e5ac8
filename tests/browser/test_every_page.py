"""What holds of every page: nothing on the browser's console, accessible, light and dark, on a telephone, by keyboard,
and without JavaScript."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import NARROW, Visitor
from tests.browser.pages import PAGES, Tried

pytestmark = [pytest.mark.browser, pytest.mark.parametrize("tried", PAGES, ids=str)]
#: Of a browser whose page is refused, which is what the page is about.
STATUS = "Failed to load resource: the server responded with a status of"
MOST_STEPS = 400


def violations(page: Page, *rules: str) -> list[str]:
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    found: list[Any] = Axe().run(page, options=options).response["violations"]
    return [f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in found for node in each["nodes"]]


def test_page(visitor: Visitor, tried: Tried) -> None:
    """In one visit, for the sake of time."""
    page = visitor.open(tried.path, tried.role, live=False)
    assert page.locator("h1").count() == 1
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    _by_keyboard(page)
    page.set_viewport_size(NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], "it is wider than a telephone"
    assert violations(page) == []
    assert [each for each in visitor.complaints if not each.startswith(STATUS)] == []


def _by_keyboard(page: Page) -> None:
    """Each step leads to the next thing that one can work with, and one sees where one is."""
    wanted = page.evaluate(MARK)
    reached = set[str]()
    page.keyboard.press("Tab")
    for _ in range(MOST_STEPS):
        seen = page.evaluate(FOCUSED)
        if seen is None or seen["mark"] in reached:
            break
        assert seen["outlined"], f"one does not see where one is: {seen['html']}"
        reached.add(seen["mark"])
        page.keyboard.press("Tab")
    missed = {mark: html for mark, html in wanted.items() if mark not in reached}
    assert missed == {}, f"{len(reached)} of {len(wanted)} are reached"


#: Everything that can be worked with gets a number; the first is what the page begins with.
MARK = """() => {
    document.body.tabIndex = -1;
    document.body.focus();
    const found = {};
    const visible = (each) => each.checkVisibility() && !each.closest("dialog:not([open])");
    [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
        .filter(visible).forEach((each, i) => { each.dataset.mark = i; found[i] = each.outerHTML.slice(0, 200); });
    return found;
}"""
FOCUSED = """() => {
    const each = document.activeElement;
    if (!each || each === document.body) return null;
    const style = getComputedStyle(each);
    each.dataset.mark ??= "x" + Math.random();
    return {mark: each.dataset.mark, html: each.outerHTML.slice(0, 200),
        outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2};
}"""


def test_without_javascript(visitor: Visitor, tried: Tried) -> None:
    page = visitor.open(tried.path, tried.role, java_script_enabled=False)
    assert page.locator("h1").is_visible()
    assert page.locator("[data-live-toggle]:visible").count() == 0
