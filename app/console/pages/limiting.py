"""Limits of a queue in a form: what is shown in it, and what was written into it."""

from __future__ import annotations

from typing import Any

from app.console.web.fields import Fields
from app.console.web.page import Input
from app.errors import BadRequest
from app.near import shown

NONE = "none"
_PARALLEL_MOST = 2**31 - 1


def inputs(rate: str | None, max_parallel: int | None, burst: float | None) -> list[Input]:
    return [
        Input("rate", "Rate", _text(rate), hint="Calls in a time, such as 100/s or 6/min; none is no limit."),
        Input("parallel", "At once", _text(max_parallel), hint="How many may run at the same time; or none."),
        Input("burst", "Saved up", _burst(burst), hint="How many unused calls of the rate may be saved up, from 1."),
    ]


def fields(rate: str | None, max_parallel: int | None, burst: float | None) -> dict[str, str]:
    """What puts these limits back, sent as a form."""
    return {"rate": _text(rate), "parallel": _text(max_parallel), "burst": _burst(burst)}


def wanted(form: Fields) -> dict[str, Any]:
    """What was sent, in the words of `app.limits`; nothing of what was not."""
    found: dict[str, Any] = {}
    if form.has("rate"):
        found["rate"] = _or_none(form, "rate")
    if form.has("parallel"):
        parallel = _or_none(form, "parallel")
        found["max_parallel"] = None if parallel is None else form.number("parallel", 1, _PARALLEL_MOST)
    if form.has("burst"):
        found["burst"] = _number(_or_none(form, "burst"))
    return found


def changes(form: Fields, before: dict[str, Any]) -> dict[str, Any]:
    """Only what is other than it was."""
    found = {word: value for word, value in wanted(form).items() if value != before[word]}
    if not found:
        raise BadRequest("nothing is other than it was")
    return found


def told(given: dict[str, Any]) -> str:
    words = {"rate": "rate", "max_parallel": "at once", "burst": "saved up"}
    return ", ".join(f"{words[word]} {_text(value)}" for word, value in given.items())


def _or_none(form: Fields, name: str) -> str | None:
    text = form.text(name)
    return None if text is None or text.lower() == NONE else text


def _number(text: str | None) -> float:
    if text is None:
        return 1.0
    try:
        return float(text)
    except ValueError:
        raise BadRequest(f"burst={shown(text)} must be a number from 1") from None


def _text(value: Any) -> str:
    return NONE if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _burst(value: float | None) -> str:
    return f"{value or 1:g}"
