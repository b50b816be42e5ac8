"""What holds of every page and every act, on a world in which whatever a producer may write is hostile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

import pytest

from app.console.pages.index import ACTS
from app.console.web.page import Act
from app.embedded import OwnServers
from tests.kit import console, pages_world, standing
from tests.kit.database import Databases
from tests.kit.pages import Person, Seen
from tests.kit.pages_world import EVIL

#: More than there are links of different kinds.
MOST = 1200
#: Acts that the world gives no reason for.
NOT_OFFERED = {"pause_operation", "pool_resume", "reactive_put_back", "remove_search"}


@pytest.fixture(scope="module")
def url(_servers: OwnServers, _databases: Databases) -> Iterator[str]:
    with standing.console_at(_servers, _databases) as found:
        pages_world.fill()
        yield found


@pytest.fixture(scope="module")
def person(url: str) -> Person:
    found = Person(url)
    found.sign_in(console.token("olga", "operator"))
    return found


@pytest.fixture(scope="module")
def seen(person: Person) -> dict[str, Seen]:
    """All that an operator reaches by links."""
    return crawl(person)


def crawl(person: Person) -> dict[str, Seen]:
    """All that can be reached by links, each once."""
    seen: dict[str, Seen] = {}
    left = ["/"]
    while left and len(seen) < MOST:
        path = left.pop()
        if path in seen:
            continue
        page = seen[path] = person.get(path)
        for link in page.links:
            target = urljoin(path, link).partition("#")[0]
            assert not urlsplit(target).netloc, f"{path} leads away, to {target}"
            if target not in seen:
                left.append(target)
    return seen


def one_of_each(seen: dict[str, Seen], words: str) -> list[str]:
    """Of the pages that have these words in them: of those that differ in numbers and questions, one."""
    kinds = {re.sub(r"\d+", "1", path.partition("?")[0]): path for path in seen if words in seen[path].html}
    return list(kinds.values())


def offers(path: str, act: Act) -> bool:
    return re.fullmatch(re.sub(r"{\w+}", "[0-9]+", act.path), path.partition("?")[0]) is not None


def harmless(page: Seen) -> None:
    for word in ("<script>alert", "<img", "onerror=alert(1)>", ">49<", "javascript:"):
        assert word not in page.html.replace("onerror=alert(1)&gt;", ""), f"{page.path} has {word}"
    assert page.html.count("<script") <= 1, page.path


def test_every_link_leads_to_a_page_that_is_harmless(seen: dict[str, Seen]) -> None:
    assert len(seen) > 40
    assert {path: page.status for path, page in seen.items() if page.status != 200} == {}
    for page in seen.values():
        harmless(page)
    here = ACTS
    missing = {act.name for act in here if not any(offers(path, act) for path in seen)}
    assert missing == NOT_OFFERED


def test_a_viewer_sees_the_same_and_is_offered_no_act(person: Person, seen: dict[str, Seen]) -> None:
    viewer = Person(person.url)
    viewer.sign_in(console.token("vera", "viewer"))
    for path in one_of_each(seen, "data-live>"):
        page = viewer.get(path)
        assert page.status == 200, path
        assert [form.action for form in page.forms if form.method == "post"] == ["/sign-out"], path
        assert "data-dialog" not in page.html, path


def test_the_living_part_of_every_page(person: Person, seen: dict[str, Seen]) -> None:
    for path in one_of_each(seen, "data-live>"):
        live = person.ask("GET", path, headers={"X-Tidemill-Live": "1"})
        assert live.status == 200, path
        assert "<html" not in live.html
        assert "etag" in live.headers


def test_questions_are_asked_in_dialogs_too(person: Person, seen: dict[str, Seen]) -> None:
    for path in one_of_each(seen, 'id="question-title"'):
        dialog = person.ask("GET", path, headers={"X-Tidemill-Dialog": "1"})
        assert dialog.status == 200, path
        assert "<html" not in dialog.html
        assert '<h2 id="question-title">' in dialog.html


def test_script_in_every_field(person: Person, seen: dict[str, Seen]) -> None:
    """Of every form that there is: it is refused, or done and shown harmlessly. The last: it changes everything."""
    done = set[tuple[str, str]]()
    for path, page in seen.items():
        for form in page.forms:
            key = (re.sub(r"\d+", "1", form.action.partition("?")[0]), form.method)
            if key in done or form.action == "/sign-out" or form.method not in ("get", "post"):
                continue
            done.add(key)
            evil = {name: EVIL if name != "proof" else value for name, value in form.fields.items()}
            said = form.send(**evil)
            assert said.status in (200, 400, 404, 409, 413), f"{path} {form.action}: {said.status}"
            harmless(said)
    for path in one_of_each(seen, "<html"):
        harmless(person.get(path))
