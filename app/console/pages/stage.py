"""A stage: its figures, what comes next, what failed; and the walks that ask it about all entities again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.clock import Rate
from app.console.pages.operations import told_rate
from app.console.pages.stages import home, known, of
from app.console.web.memory import RememberedBy
from app.console.web.page import REASON, Act, Done, Input, Page, Question, Undo, Visit
from app.db import transaction
from app.errors import BadRequest
from stages import listing, parked, resweep
from stages.definition import SYSTEM
from stages.lookup import Known
from stages.model import ResweepState
from stages.parked import Selection
from stages.resweep import Progress
from stages.watched import kinds

SHOWN = 15
#: How often errors are grouped, and walks looked through, for all who look.
GROUPS_SECONDS, WALKS_SECONDS = 3.0, 1.0
WALKS, WALKS_LOOKED_THROUGH = 5, 100
NO_RATE = "none"
_RATE_HINT = "Entities asked about in a time, such as 500/s; none is as fast as it goes."


def _groups(stage: Known) -> list[parked.Group]:
    with transaction() as session:
        return parked.groups(session, Selection((stage,)), SHOWN)


def _walked(stage: Known) -> list[Progress]:
    """The latest first."""
    found = resweep.overview(WALKS_LOOKED_THROUGH)
    return [each for each in found if (each.kind, each.stage or SYSTEM) == (stage.kind, stage.name)][:WALKS]


_by_error = RememberedBy(_groups, GROUPS_SECONDS).kept()
_walks = RememberedBy(_walked, WALKS_SECONDS).kept()


def _shown(visit: Visit) -> Mapping[str, Any]:
    stage = known(visit)
    key = replace(stage, task=None, removed=False)
    low = visit.query.flag("low")
    with transaction() as session:
        failures = parked.latest(session, Selection((stage,)), SHOWN)
        waiting = listing.waiting(session, stage, SHOWN, low=low)
    walks = _walks.get(key)
    return {
        "stage": stage,
        "seen": of(stage),
        "groups": _by_error.get(key),
        "failures": failures,
        "waiting": waiting,
        "low": low,
        "walks": [(each, told_rate(each.rate)) for each in walks],
        "live": next((each for each in walks if each.ended_at is None), None),
        "system": stage.name == SYSTEM,
    }


def _live(stage: Known) -> Progress:
    for each in resweep.overview(resweep.LISTED_MOST, live=True):
        if (each.kind, each.stage or SYSTEM) == (stage.kind, stage.name):
            return each
    raise BadRequest(f"no walk for {stage} is under way")


def _rate(visit: Visit) -> str | None:
    text = visit.form.text("rate")
    return None if text is None or text == NO_RATE else text


def _is(walk: Progress) -> str:
    return f"{walk.asked} of about {walk.total} entities were asked about, {walk.wanted} times wanted."


def _ask_start(visit: Visit) -> Question:
    stage = known(visit)
    whom = f"all stages of {stage.kind}" if stage.name == SYSTEM else str(stage)
    says = [
        f"All entities of {stage.kind} are walked over, and {whom} asked about each.",
        "What is wanted comes into the low lane, which holds up nothing of the main lane.",
    ]
    obstacle = None
    if stage.kind not in kinds:
        obstacle = f"The model of {stage.kind} is not here: start the console with TIDEMILL_MODULES that have it."
    rate = Input("rate", "Rate", NO_RATE, hint=_RATE_HINT)
    title = f"Ask {whom} about all entities again?"
    return Question(title, says, "Begin the walk", [rate, REASON], obstacle=obstacle, back=home(stage))


def _start(visit: Visit) -> Done:
    stage = known(visit)
    if stage.kind not in kinds:
        raise BadRequest(f"the model of {stage.kind} is not here, and a walk begins where it is")
    what = stage.kind if stage.name == SYSTEM else str(stage)
    number = resweep.start(what, rate=_rate(visit), reason=visit.form.text("reason"))
    undo = Undo("cancel_resweep", {"name": str(stage)}, "Cancel it")
    return Done(f"Walk {number} has begun.", home(stage), undo)


def _ask_pause(visit: Visit) -> Question:
    stage = known(visit)
    walk = _live(stage)
    obstacle = "It is paused already." if walk.state == ResweepState.PAUSED else None
    says = [_is(walk), "What is in queues already is visited all the same."]
    return Question(f"Pause walk {walk.id}?", says, "Pause", [REASON], obstacle=obstacle, back=home(stage))


def _pause(visit: Visit) -> Done:
    stage = known(visit)
    walk = _live(stage)
    resweep.pause(walk.id, reason=visit.form.text("reason"))
    undo = Undo("resume_resweep", {"name": str(stage)}, "Resume")
    return Done(f"Walk {walk.id} is paused.", home(stage), undo)


def _ask_resume(visit: Visit) -> Question:
    stage = known(visit)
    walk = _live(stage)
    rate = Input("rate", "Rate", NO_RATE if walk.rate is None else str(Rate(walk.rate)), hint=_RATE_HINT)
    title = f"Let walk {walk.id} go on?" if walk.state == ResweepState.PAUSED else f"Change the rate of walk {walk.id}?"
    return Question(title, [_is(walk)], "Go on", [rate, REASON], back=home(stage))


def _resume(visit: Visit) -> Done:
    stage = known(visit)
    walk = _live(stage)
    reason = visit.form.text("reason")
    with transaction() as session:
        if visit.form.has("rate"):
            resweep.change_rate(walk.id, _rate(visit), reason=reason, session=session)
        resweep.resume(walk.id, reason=reason, session=session)
    undo = Undo("pause_resweep", {"name": str(stage)}, "Pause") if walk.state == ResweepState.PAUSED else None
    return Done(f"Walk {walk.id} goes on.", home(stage), undo)


def _ask_cancel(visit: Visit) -> Question:
    stage = known(visit)
    walk = _live(stage)
    says = [_is(walk), "What it has put into queues stays there. It cannot be resumed."]
    return Question(f"Cancel walk {walk.id}?", says, "Cancel it", [REASON], danger=True, back=home(stage))


def _cancel(visit: Visit) -> Done:
    stage = known(visit)
    walk = _live(stage)
    resweep.cancel(walk.id, reason=visit.form.text("reason"))
    return Done(f"Walk {walk.id} is cancelled.", home(stage))


PAGES = (Page("stage", "/stage", "stage.html", _shown),)
ACTS = (
    Act("start_resweep", "/stage/resweep", _ask_start, _start),
    Act("pause_resweep", "/stage/resweep/pause", _ask_pause, _pause),
    Act("resume_resweep", "/stage/resweep/resume", _ask_resume, _resume),
    Act("cancel_resweep", "/stage/resweep/cancel", _ask_cancel, _cancel),
)
