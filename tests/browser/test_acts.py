"""Acts in a browser: asked in a dialog, answered by keyboard, put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, expect

from app.console.pages.index import ACTS
from app.db import transaction
from processes import listing
from tests.browser.conftest import Visitor

pytestmark = pytest.mark.browser

Answers = Mapping[str, str]


@dataclass(frozen=True)
class Tried:
    """`acts`: the one whose link is followed, and the one that puts it back."""

    acts: tuple[str, ...]
    path: str
    link: str
    #: What is told when it is done, and when it was put back.
    says: str
    back: str | None = None
    answers: Answers = field(default_factory=dict)
    #: Of a question in two steps: the first.
    choice: Answers = field(default_factory=dict)
    #: The part of the page in which the link is.
    within: str | None = None

    def __str__(self) -> str:
        return " ".join(self.acts)


TRIED = (
    Tried(
        ("set_actor",),
        "/actor?name=ship",
        "Change settings",
        "work_timeout is 2min, was 1min",
        "work_timeout is 1min, was 2min",
        {"work_timeout": "2min"},
    ),
    Tried(("block_actor", "unblock_actor"), "/actor?name=ship", "Block", "ship is blocked.", "ship is open."),
    Tried(
        ("resume_operation", "pause_operation"),
        "/operations/{paused_operation}",
        "Resume",
        "goes on.",
        "is paused.",
        {"Rate": "3/s"},
    ),
    Tried(("cancel_operation",), "/operations/{spare_operation}", "Cancel", "is cancelled; "),
    Tried(
        ("retry_operation", "cancel_operation"),
        "/operations/{failed_operation}",
        "Try what failed again",
        "tries again what has failed",
        "is cancelled; ",
    ),
    Tried(
        ("start_operation", "pause_operation"),
        "/processes?custom_id=order-40",
        "Check",
        "is started: check.",
        "is paused.",
        {"Rate": "5/s"},
    ),
    Tried(("save_search",), "/processes?custom_id=order-41", "Save this search", "is saved.", answers={"Name": "mine"}),
    Tried(("remove_search",), "/processes?template=broken-of-shop", "Remove the saved search", "is removed."),
    Tried(("abort_process",), "/processes/{active}", "Abort", "is aborted."),
    Tried(
        ("restart_process",),
        "/processes/{hostile}",
        "Restart from task 3",
        "goes on: 4 tasks again.",
        answers={"Why": "the bank is back"},
    ),
    Tried(
        ("reactive_resume", "reactive_pause"),
        "/reactive/task?task={paused_task}",
        "Resume",
        "is resumed; ",
        "is paused.",
    ),
    Tried(("reactive_release",), "/reactive/task?task={broken_task}", "Release", "is released; "),
    Tried(
        ("reactive_run", "reactive_cancel"),
        "/reactive/task?task=warehouse.t00010",
        "Run now",
        "waits for a worker.",
        "is cancelled.",
    ),
    Tried(
        ("reactive_rewind", "reactive_put_back"),
        "/reactive/task?task=warehouse.t00012",
        "Rewind",
        "has seen nothing after 2025-12-31",
        "has seen again what it had seen.",
        choice={"To": "2025-12-31T00:00:00Z"},
    ),
    Tried(
        ("reactive_forget", "reactive_put_back"),
        "/reactive/task?task=warehouse.t00013",
        "Forget",
        "has seen nothing now.",
        "has seen again what it had seen.",
    ),
    Tried(
        ("pool_limit",),
        "/reactive/pools",
        "Limit",
        ": 7 at once, any number of starts.",
        ": any number at once, any number of starts.",
        {"At once": "7"},
    ),
    Tried(("pool_pause", "pool_resume"), "/reactive/pools", "Pause", " is paused.", " is open."),
    Tried(
        ("ctl_advance", "ctl_restate"),
        "/dataset?entity=e7",
        "Advance",
        "e7.p is at 2026-03-01T00:00:00Z.",
        "e7.p is restated to 2026-01-01T00:00:00Z.",
        choice={"Parameter": "p", "Value": "2026-03-01T00:00:00Z"},
    ),
    Tried(
        ("pause_stage", "resume_stage"),
        "/stage?name=voucher.predict",
        "Pause",
        "voucher.predict is paused.",
        "voucher.predict is open.",
    ),
    Tried(
        ("limit_stage",),
        "/stage?name=voucher.predict",
        "Change limits",
        "voucher.predict: rate 7/s.",
        "voucher.predict: rate 100/s.",
        {"Rate": "7/s"},
    ),
    Tried(
        ("pause_resweep", "resume_resweep"),
        "/stage?name=voucher.predict",
        "Pause",
        "is paused.",
        "goes on.",
        within="The walk under way",
    ),
    Tried(("cancel_resweep",), "/stage?name=voucher.watchless", "Cancel", "is cancelled.", within="The walk under way"),
    Tried(
        ("offer_entity",),
        "/entity?kind=voucher&id=c7",
        "Visit it",
        "It is in the queue of publish.",
        answers={"Stage": "publish", "When": "2h"},
    ),
    Tried(("redrive_entity",), "/entity?kind=voucher&id=c1", "Redrive", "voucher.predict visits it again."),
    Tried(("redrive",), "/parked?stage=voucher.predict&error=299001", "Redrive what is found", "1 visit redriven."),
    Tried(("cancel_job", "rerun_job"), "/jobs/{job_1}", "Cancel", "is cancelled.", "is put in again, as job"),
    Tried(("snooze_job",), "/jobs/{job_2}", "Snooze", "is snoozed.", "is snoozed.", {"Until": "2h"}),
    Tried(("prioritize_job",), "/jobs/{job_3}", "Priority", "has priority 5.", "has priority 0.", {"Priority": "5"}),
    Tried(("retry_job",), "/jobs/{job_0}", "Try again", "is tried again."),
    Tried(("rerun_found",), "/log?job=1000007", "Put all that is found in again", "1 job put in again"),
    Tried(
        ("pause_periodic", "resume_periodic"),
        "/periodic",
        "Pause",
        "shop.report is paused.",
        "shop.report fires again.",
    ),
    Tried(
        ("pause_queue", "resume_queue"),
        "/queues?name=mail-1",
        "Pause",
        "The queue mail-1 is paused.",
        "The queue mail-1 is open.",
    ),
    Tried(
        ("limit_queue",),
        "/queues?name=mail-2",
        "Limits",
        "The queue mail-2: rate 7/s.",
        "The queue mail-2: rate none.",
        {"Rate": "7/s"},
    ),
)
#: Where nothing of the kind can be begun from here, of which its test is.
REFUSED = {"start_resweep"}


def test_every_act_is_tried() -> None:
    tried = {name for each in TRIED for name in each.acts}
    assert tried | REFUSED == {each.name for each in ACTS}


@pytest.mark.parametrize("tried", TRIED, ids=str)
def test_an_act(visitor: Visitor, tried: Tried) -> None:
    """By keyboard: asked for, answered, and put back where that can be."""
    page = visitor.open(tried.path, live=False)
    part = page.locator("main") if tried.within is None else page.get_by_role("region", name=tried.within)
    part.get_by_role("link", name=f"{tried.link}…").first.press("Enter")
    asked = page.get_by_role("dialog")
    if tried.choice:
        fill(asked, tried.choice)
        asked.get_by_role("button", name="Show what it would do").press("Enter")
        asked = page.locator("main")
    fill(asked, tried.answers)
    asked.locator("form[method=post] .answers button").press("Enter")
    told = page.get_by_role("status")
    expect(told).to_contain_text(tried.says)
    if tried.back is not None:
        told.get_by_role("button").press("Enter")
        expect(told).to_contain_text(tried.back)
    assert visitor.complaints == []


def fill(asked: Locator, answers: Answers) -> None:
    for label, text in answers.items():
        found = asked.get_by_label(label, exact=True)
        if found.evaluate("each => each.tagName") == "SELECT":
            found.select_option(text)
        else:
            found.fill(text)


def test_what_cannot_be_done_is_said_instead_of_asked(visitor: Visitor) -> None:
    page = visitor.open("/stage?name=voucher.publish", live=False)
    page.get_by_role("link", name="Ask about all again…").press("Enter")
    dialog = page.get_by_role("dialog", name="Ask voucher.publish about all entities again?")
    expect(dialog).to_contain_text("The model of voucher is not here")
    expect(dialog.get_by_role("button")).to_have_count(0)


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
