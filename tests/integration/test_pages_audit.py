"""The page of the audit."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from sqlalchemy.engine import Engine

from app import audit
from app.db import transaction
from tests.kit.pages import Person, signed_in

EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture
def person(engine: Engine) -> Iterator[Person]:
    with signed_in("viewer") as found:
        yield found


def test_it_says_who_did_what_and_why(person: Person) -> None:
    with transaction() as session:
        audit.record(session, "queue.pause", "mail", reason="too many", rate=7)
    page = person.get("/audit")
    for words in ("queue.pause", "mail", "too many", audit.actor()):
        assert words in page.text


def test_what_a_person_wrote_is_escaped(person: Person) -> None:
    with transaction() as session:
        audit.record(session, EVIL, EVIL, reason=EVIL, **{EVIL: EVIL})
    for path in ("/audit", f"/audit?subject={quote(EVIL)}", f"/audit?actor={quote(EVIL)}&subject={quote(EVIL)}"):
        page = person.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.html
        assert "<img" not in page.html


def test_pages_by_key(person: Person) -> None:
    with transaction() as session:
        for number in range(120):
            audit.record(session, "queue.pause", f"q-{number:03}")
    seen, path = [], "/audit"
    while True:
        page = person.get(path)
        seen += [line.split("<")[0] for line in page.html.split("subject=q-")[1:]]
        older = [link for link in page.links if "before=" in link]
        if not older:
            break
        path = f"/audit{older[0]}"
    assert [word.partition('"')[0] for word in seen] == [f"{number:03}" for number in range(119, -1, -1)]


def test_filters(person: Person) -> None:
    with transaction() as session:
        audit.record(session, "queue.pause", "mail")
        with audit.acting("olga@console"):
            audit.record(session, "queue.resume", "mail")
            audit.record(session, "queue.pause", "other")
    assert "other" not in person.get("/audit").form("/audit").send(subject="mail").text.partition("Footer")[0]
    both = person.get("/audit?actor=olga@console&subject=mail").text
    assert "queue.resume" in both
    assert "queue.pause" not in both
    assert "Nothing matches" in person.get("/audit?subject=none").text
    assert person.get("/audit?before=0").status == 400
    assert person.get("/audit?before=" + "9" * 40).status == 400
