"""Checks of this program and its settings."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable

from app.errors import TidemillError
from app.health.finding import Finding, fail, ok
from app.settings import settings

FLOOR = (3, 11)


def python() -> Finding:
    found = platform.python_version()
    if sys.version_info[:2] < FLOOR:
        return fail("python", f"this is Python {found}", "install Python 3.11 or later")
    return ok("python", found)


def configured() -> list[Finding]:
    """The settings can be read, and both URLs are known."""
    found = []
    asked: tuple[tuple[str, Callable[[], str]], ...] = (
        ("settings", lambda: f"modules: {', '.join(settings().modules) or 'none'}"),
        ("database URL", lambda: _source(settings().database_url, settings().resolved_database_url())),
        ("broker URL", lambda: _source(settings().broker_url, settings().resolved_broker_url())),
    )
    for check, ask in asked:
        try:
            found.append(ok(check, ask()))
        except TidemillError as error:
            found.append(fail(check, str(error), "correct the setting"))
            if check == "settings":
                break
    return found


def _source(given: str | None, _resolved: str) -> str:
    return "from the environment" if given else f"of the embedded servers in {settings().home}"
