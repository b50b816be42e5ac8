"""What the pages lead to where there is more than a console: Flower, and the demo."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Engine

from app.settings import settings
from tests.kit.pages import signed_in

FLOWER = "https://ops.example/flower"


@pytest.fixture(autouse=True)
def _settings(engine: Engine) -> Iterator[None]:
    """Of each test its own."""
    yield
    settings.cache_clear()


def test_alone_there_is_nothing_of_both() -> None:
    with signed_in() as person:
        overview = person.get("/")
        assert not {"/demo", FLOWER} & set(overview.links)
        assert person.get("/demo").status == 404


def test_every_page_leads_to_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_FLOWER_URL", FLOWER)
    settings.cache_clear()
    with signed_in("viewer") as person:
        assert all(FLOWER in person.get(path).links for path in ("/", "/audit"))


def test_the_demo_has_a_page_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes its commands for the place where it was started."""
    monkeypatch.setenv("TIDEMILL_DEMO", "yes")
    monkeypatch.setenv("TIDEMILL_HOME", "/srv/tidemill")
    settings.cache_clear()
    with signed_in() as person:
        assert "/demo" in person.get("/").links
        page = person.get("/demo")
        assert "export TIDEMILL_HOME=/srv/tidemill" in page.text
        assert "kill -9 -$(cat /srv/tidemill/worker-1.pid)" in page.text
        assert {"/log?outcome=lost", "/processes?state=BROKEN"} <= set(page.links)
        assert all(
            person.get(each).status == 200 for each in page.links if each.startswith("/") and "task=" not in each
        )
