"""What is changed about Flower: who it is open to, what it calls a ticket, the link in its pages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click import ClickException
from flower.urls import settings as of_flower

from app.doorbell import GENERIC
from app.flower import Pages, close, readable
from app.registry import Function, registry


def options(**given: Any) -> Any:
    return SimpleNamespace(**({"basic_auth": None, "auth": "", "address": "", "unix_socket": ""} | given))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7", "flower.example"])  # noqa: S104
def test_it_refuses_to_be_open_to_others(address: str) -> None:
    with pytest.raises(ClickException, match="FLOWER_BASIC_AUTH"):
        close(options(address=address))


@pytest.mark.parametrize(
    "given",
    [
        {"address": "127.0.0.1"},
        {"address": "::1"},
        {"address": "localhost"},
        {"address": "0.0.0.0", "basic_auth": ["me:secret"]},  # noqa: S104
        {"address": "0.0.0.0", "auth": ".*@example.com"},  # noqa: S104
        {"unix_socket": "flower.sock"},
    ],
)
def test_what_is_closed_may_listen(given: Any) -> None:
    found = options(**given)
    close(found)
    assert vars(found) == vars(options(**given))


def test_nowhere_in_particular_is_this_machine() -> None:
    found = options()
    close(found)
    assert found.address == "127.0.0.1"
    found = options(basic_auth=["me:secret"])
    close(found)
    assert found.address == ""


@pytest.mark.parametrize(
    ("name", "args", "shown"),
    [
        (GENERIC, "('jobs', 'main')", "work of jobs"),
        (GENERIC, "('stage.offer.expire.low', 'low')", "shop.Expire"),
        (GENERIC, "('reactive.marts', 'main')", "work of reactive.marts"),
        (GENERIC, None, GENERIC),
        (GENERIC, "nonsense(", GENERIC),
        (GENERIC, "('one',)", GENERIC),
        ("shop.send", "('jobs', 'main')", "shop.send"),
        ("tidemill.control.dispatch", "()", "tidemill.control.dispatch"),
    ],
)
def test_names_of_tickets(monkeypatch: pytest.MonkeyPatch, name: str, args: Any, shown: str) -> None:
    known = {"shop.Expire": "stage.offer.expire", "marts.a": "reactive.marts", "marts.b": "reactive.marts"}
    monkeypatch.setattr(registry, "functions", {each: Function(each, None, queue) for each, queue in known.items()})
    assert readable(SimpleNamespace(name=name, args=args)).name == shown


def test_the_link_to_the_console() -> None:
    root = of_flower["template_path"]
    plain, linked = Pages(root, None), Pages(root, 'https://ops.example/"><script>{{ 1 }}')
    assert b"Tidemill" not in _text(plain)
    assert b"https://ops.example/&quot;&gt;&lt;script&gt;%7B%7B 1 %7D%7D" in _text(linked)
    assert b"Tidemill console" in _text(linked)


def _text(pages: Pages) -> bytes:
    words = {"active_tab": "workers", "reverse_url": str, "static_url": str, "current_user": None}
    handler = SimpleNamespace(application=SimpleNamespace(options=SimpleNamespace(auth="")))
    return pages.load("navbar.html").generate(handler=handler, **words)
