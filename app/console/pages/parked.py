"""Visits that failed too often: by what went wrong, and visited again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.clock import moment
from app.console.web.fields import Fields, address
from app.console.web.memory import RememberedBy
from app.console.web.page import REASON, Act, Done, Input, Page, Question, Visit
from app.db import transaction
from app.errors import BadRequest
from app.words import several
from stages import lookup, parked, redriving
from stages.parked import Selection

SHOWN, GROUPS = 50, 50
#: How often errors are grouped, for all who look at the same.
SECONDS = 3.0
WORDS = ("stage", "group", "error")


def _selection(query: Fields, *, redrive: bool = False) -> Selection:
    """To be redriven, of stages that are declared."""
    words = query.text("stage")
    with transaction() as session:
        if words is not None:
            of = [lookup.stage(session, words)]
        elif redrive:
            of = lookup.known_stages(session)
        else:
            of = None
    if redrive and of is not None:
        of = [each for each in of if not each.removed]
    stages = None if of is None else tuple(of)
    return Selection(stages, error=query.text("error"), group=query.text("group"))


def _groups(selection: Selection) -> list[parked.Group]:
    with transaction() as session:
        return parked.groups(session, selection, GROUPS)


def _latest(selection: Selection) -> list[parked.Parked]:
    with transaction() as session:
        return parked.latest(session, selection, SHOWN)


_by_error = RememberedBy(_groups, SECONDS).kept()
_shown = RememberedBy(_latest, SECONDS).kept()


def _read(visit: Visit) -> Mapping[str, Any]:
    selection = _selection(visit.query)
    given = {word: text for word in WORDS if (text := visit.query.text(word))}
    return {
        "groups": _by_error.get(selection),
        "rows": _shown.get(selection),
        "words": given,
        "most": SHOWN,
        "grouped": parked.GROUPED,
    }


def _home(visit: Visit) -> str:
    return address("/parked", **{word: visit.query.text(word) for word in WORDS})


def _ask(visit: Visit) -> Question:
    with transaction() as session:
        found = redriving.preview(session, _selection(visit.query, redrive=True))
    number = f"{found.total} or more visits" if found.more else several(found.total, "visit")
    says = [f"{number} that {'is' if found.total == 1 else 'are'} parked now, with all attempts anew, at once."]
    says += ["What fails again meanwhile stays parked."]
    return Question(
        "Visit again what is parked?",
        says,
        f"Redrive {number}",
        [Input("until", "", found.until.isoformat(), kind="hidden"), REASON],
        danger=found.total > SHOWN,
        obstacle=None if found.total else "Nothing of the kind is parked.",
        back=_home(visit),
        more={"groups": found.groups, "total": found.total},
    )


def _until(form: Fields) -> datetime | None:
    """When the question was asked: what was parked later is not part of the answer."""
    if (text := form.text("until")) is None:
        return None
    try:
        found = moment(text)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    return found if isinstance(found, datetime) else None


def _redrive(visit: Visit) -> Done:
    selection = _selection(visit.query, redrive=True)
    with transaction() as session:
        found = redriving.preview(session, selection, 1)
    until = min(found.until, _until(visit.form) or found.until)
    done = redriving.redrive(selection, until, expected=found.total, reason=visit.form.text("reason"))
    left = f" {done.left} are being changed by somebody just now and stay parked." if done.left else ""
    return Done(f"{several(done.visits, 'visit')} redriven.{left}", _home(visit))


PAGES = (Page("parked", "/parked", "parked.html", _read),)
ACTS = (Act("redrive", "/parked/redrive", _ask, _redrive, "redrive.html"),)
