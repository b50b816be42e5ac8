"""What the script of the pages does: live updates, keys, the theme."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from app import audit
from app.db import transaction
from tests.browser.conftest import LIMIT_MS, Visitor

pytestmark = pytest.mark.browser


def change(subject: str) -> None:
    with transaction() as session:
        audit.record(session, "queue.pause", subject, reason="seen live", first=1, second=2)


def test_what_changes_appears_and_what_one_does_stays(visitor: Visitor) -> None:
    change("before")
    page = visitor.open("/audit")
    details = page.locator("details").first
    details.locator("summary").click()
    details.locator("summary").focus()
    page.evaluate("window.same = document.activeElement")
    change("after")
    expect(page.get_by_role("link", name="after")).to_be_visible(timeout=LIMIT_MS)
    assert page.evaluate("window.same === document.activeElement")
    assert page.evaluate("window.same.parentElement.open")
    assert visitor.complaints == []


def test_paused_nothing_is_asked_for(visitor: Visitor) -> None:
    page = visitor.open("/audit")
    page.get_by_role("button", name="Live").click()
    toggle = page.locator("[data-live-toggle]")
    expect(toggle).to_have_text("Paused")
    expect(toggle).to_have_attribute("aria-pressed", "false")
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.clock.run_for(10_000)
    assert asked == []
    page.keyboard.press("l")
    expect(toggle).to_have_text("Live")
    page.clock.run_for(5_000)
    assert asked != []


def test_keys(visitor: Visitor) -> None:
    page = visitor.open("/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("u")
    page.wait_for_url("**/audit")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "subject"
    page.keyboard.type("mail?")
    page.keyboard.press("Tab")
    assert page.locator("[name=subject]").input_value() == "mail?"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("j")
    rows = "[...document.querySelectorAll('main tbody tr')]"
    assert page.evaluate(f"{rows}.indexOf(document.activeElement.closest('tr'))") == 1
    page.keyboard.press("k")
    assert page.evaluate(f"{rows}.indexOf(document.activeElement.closest('tr'))") == 0


def test_a_key_counts_as_soon_as_the_dialog_is_closed(visitor: Visitor) -> None:
    page = visitor.open("/")
    page.keyboard.press("?")
    # The dialog is closed and the key comes before the page is drawn again, as on a slow machine.
    page.evaluate("""() => {
        const dialog = document.querySelector("#keys"), focused = document.activeElement;
        dialog.close();
        for (const key of "gu") focused.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    }""")
    page.wait_for_url("**/audit")
    assert visitor.complaints == []


def test_dark_or_light_stays(visitor: Visitor) -> None:
    page = visitor.open("/", color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.keyboard.press("t")
    assert page.evaluate(background) != light
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate(background) != light


def test_who_is_signed_out_elsewhere_is_asked_to_sign_in(visitor: Visitor) -> None:
    page = visitor.open("/audit", "viewer")
    page.context.clear_cookies()
    page.wait_for_url("**/sign-in**")
    assert "/sign-in?next=%2Faudit" in page.url
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_commands_are_copied_as_they_stand(visitor: Visitor) -> None:
    page = visitor.open("/demo", permissions=["clipboard-read", "clipboard-write"])
    box = page.locator(".typed").filter(has=page.get_by_label("Wipe the broker", exact=True))
    box.get_by_role("button").click()
    expect(box.get_by_role("button")).to_contain_text("Copied")
    lines = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert [line.split()[0] for line in lines] == ["rm", "kill"]
    assert visitor.complaints == []
