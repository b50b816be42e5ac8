"""Acts in a browser: asked in a dialog, answered by keyboard, put back."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from app.db import transaction
from processes import listing
from tests.browser.conftest import Visitor

pytestmark = pytest.mark.browser


def blocked(name: str) -> bool:
    with transaction() as session:
        (found,) = listing.actors(session, name)
    return found.blocked


def test_an_act_is_asked_for_done_and_put_back(visitor: Visitor) -> None:
    page = visitor.open("/actor?name=reserve")
    page.get_by_role("link", name="Block…").press("Enter")
    dialog = page.get_by_role("dialog", name="Block reserve?")
    expect(dialog).to_be_visible()
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    assert not blocked("reserve")
    page.get_by_role("link", name="Block…").click()
    dialog.get_by_label("Why").fill("they are down")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("reserve is blocked.")
    assert blocked("reserve")
    page.get_by_role("status").get_by_role("button", name="Unblock").click()
    expect(page.get_by_role("status")).to_contain_text("reserve is open.")
    assert not blocked("reserve")
    page.reload()
    expect(page.get_by_role("status")).to_have_count(0)
    assert visitor.complaints == []


def test_no_closes_the_dialog_and_changes_nothing(visitor: Visitor) -> None:
    page = visitor.open("/processes/{broken}")
    page.get_by_role("link", name="Restart from task 3…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What becomes of its tasks")
    dialog.get_by_role("link", name="No, back").click()
    expect(dialog).not_to_be_visible()
    assert "/restart" not in page.url


def test_without_javascript_the_question_is_a_page(visitor: Visitor) -> None:
    page = visitor.open("/operations/{paused_operation}", java_script_enabled=False)
    page.get_by_role("link", name="Resume…").click()
    page.get_by_label("Rate").fill("3/s")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("status")).to_contain_text("goes on.")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("is paused.")
    assert page.url.endswith("/operations/2")
