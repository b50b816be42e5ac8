"""Every pass looks at its `limit` before it goes into a statement."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from app.checks import limited
from app.errors import BadRequest

ROOT = Path(__file__).parents[2]
PASSES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for package in ("app", "recovery", "stages", "processes", "triggers")
    for path in (ROOT / package).rglob("*.py")
    if re.search(r"^def run_once\(", path.read_text(), re.MULTILINE)
)


def test_all_are_found() -> None:
    assert {"app.dispatch", "app.jobs.schedules", "recovery.jobs", "triggers.polling"} <= set(PASSES)


@pytest.mark.parametrize("module", PASSES)
def test_a_wrong_limit_is_refused(module: str) -> None:
    run_once = import_module(module).run_once
    for wrong in (None, "x", -1, 1.5, True, 2**31):
        said = rf"^run_once: limit={wrong!r} must be a whole number from 0 to 2147483647"
        for positional, named in (([wrong], {}), ([], {"limit": wrong})):
            with pytest.raises(BadRequest, match=said):
                run_once(*positional, **named)


def test_the_rest_is_handed_on() -> None:
    @limited
    def run_once(limit: int = 7, *, name: str = "") -> tuple[int, str]:
        return limit, name

    assert (run_once(), run_once(3), run_once(limit=0, name="x")) == ((7, ""), (3, ""), (0, "x"))
    assert run_once.__name__ == "run_once"
