"""A console that really runs, on a database with something of everything in it and very much of most, and Chromium in
front of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from app import db
from app.embedded import OwnServers
from tests.browser import chromium
from tests.conftest import child_environment
from tests.kit import console, pages_crowd, pages_world, standing
from tests.kit.database import Databases
from tests.kit.process import Processes

#: A loaded machine must not fail them.
LIMIT_MS = 60_000
expect.set_options(timeout=LIMIT_MS)
WIDE: ViewportSize = {"width": 1280, "height": 900}
NARROW: ViewportSize = {"width": 375, "height": 812}


@dataclass
class World:
    url: str
    #: Of what there is, by name.
    names: dict[str, Any]
    #: By role: the token, and what a browser keeps of who has signed in with it.
    tokens: dict[str, str]
    #: Of a second console, with the page that only the demo has.
    demo_url: str
    states: dict[str, Any] = field(default_factory=dict)

    def address(self, path: str) -> str:
        return (self.demo_url if path == "/demo" else self.url) + path.format(**self.names)


@pytest.fixture(scope="session")
def world(_servers: OwnServers, _databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    processes = Processes(tmp_path_factory.mktemp("console"))
    with standing.database(_servers, _databases) as url:
        pages_crowd.keep_numbers(db.engine())
        names = pages_world.fill()
        names |= pages_crowd.fill(db.engine())
        tokens = {role: console.token(f"{role}-olga", role) for role in ("operator", "viewer")}
        env = child_environment(url, _servers.broker_url)
        _, address = console.program(processes, env)
        _, demo = console.program(
            processes, env | {"TIDEMILL_DEMO": "yes", "TIDEMILL_FLOWER_URL": "http://flower.test"}
        )
        yield World(address, names, tokens, demo)
        processes.end()


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    path = chromium.found()
    assert path is not None, chromium.NONE
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=chromium.arguments())
        yield found
        found.close()


@dataclass
class Visitor:
    """Opens pages as somebody, and notes what the browser complains about."""

    world: World
    chrome: Browser
    complaints: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)

    def open(self, path: str, role: str = "operator", *, live: bool = True, **options: Any) -> Page:
        options.setdefault("viewport", WIDE)
        context = self.chrome.new_context(storage_state=self._state(role), **options)
        context.set_default_timeout(LIMIT_MS)
        self._contexts.append(context)
        if not live:
            context.add_init_script("localStorage.setItem('tidemill.live', 'off')")
        page = context.new_page()
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("requestfailed", self._note_failure)
        page.goto(self.world.address(path), wait_until="load")
        return page

    def _note(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def _note_failure(self, request: Request) -> None:
        # A page that is left takes its question whether it is up to date along.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"{request.url}: {request.failure}")

    def _state(self, role: str) -> Any:
        if role == "nobody":
            return None
        if role not in self.world.states:
            context = self.chrome.new_context()
            page = context.new_page()
            page.goto(f"{self.world.url}/sign-in")
            page.fill("#token", self.world.tokens[role])
            page.click("main button")
            page.wait_for_url(f"{self.world.url}/")
            self.world.states[role] = context.storage_state()
            context.close()
        return self.world.states[role]

    def close(self) -> None:
        for each in self._contexts:
            each.close()


@pytest.fixture
def visitor(world: World, chrome: Browser) -> Iterator[Visitor]:
    found = Visitor(world, chrome)
    yield found
    found.close()
