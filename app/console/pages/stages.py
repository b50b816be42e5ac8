"""Stages: what waits in each, runs and is parked, under which limits; paused, resumed and limited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.console.pages import limiting
from app.console.web.fields import address
from app.console.web.memory import Remembered
from app.console.web.page import REASON, Act, Done, Page, Question, Undo, Visit
from app.db import transaction
from app.errors import NotFound
from stages import listing, lookup, operate, resweep
from stages.definition import SYSTEM
from stages.listing import Listed
from stages.lookup import Known
from stages.resweep import Progress

#: How often depths are counted, for all who look.
SECONDS = 1.0


def _all() -> list[Listed]:
    with transaction() as session:
        return listing.stages(session)


def _walks() -> list[Progress]:
    return resweep.overview(resweep.LISTED_MOST, live=True)


_SEEN = Remembered(_all, SECONDS).kept()
_WALKS = Remembered(_walks, SECONDS).kept()


def _listed(visit: Visit) -> Mapping[str, Any]:
    kind = visit.query.text("kind")
    found = _SEEN.get()
    rows = [each for each in found if kind in (None, each.kind)]
    return {
        "rows": rows,
        "kinds": sorted({each.kind for each in found}),
        "kind": kind,
        "walks": {(each.kind, each.stage or SYSTEM): each for each in _WALKS.get()},
    }


def known(visit: Visit) -> Known:
    with transaction() as session:
        return lookup.stage(session, visit.query.needed("name"))


def of(stage: Known) -> Listed:
    """Its line in the list."""
    for each in _SEEN.get():
        if (each.kind, each.name) == (stage.kind, stage.name):
            return each
    raise NotFound(f"stage {stage} is not declared any more, and nothing is left of it")


def home(stage: Known) -> str:
    return address("/stage", name=stage)


def _ask_pause(visit: Visit) -> Question:
    stage = known(visit)
    says = [
        "Nothing more is visited, in either lane, by the whole cluster. What is being visited ends as usual.",
        "Entities keep coming into its queue.",
    ]
    obstacle = "It is paused already." if of(stage).paused else None
    return Question(f"Pause {stage}?", says, "Pause", [REASON], obstacle=obstacle, back=home(stage))


def _pause(visit: Visit) -> Done:
    stage = known(visit)
    new = operate.pause(stage, reason=visit.form.text("reason"))
    undo = Undo("resume_stage", {"name": str(stage)}, "Resume")
    return Done(f"{stage} {'is' if new else 'was already'} paused.", home(stage), undo)


def _ask_resume(visit: Visit) -> Question:
    stage = known(visit)
    seen = of(stage)
    says = ["It visits again what waits; where its service was away, it is tried at once."]
    obstacle = None if seen.paused or seen.rests_why else "It is not paused."
    return Question(f"Resume {stage}?", says, "Resume", [REASON], obstacle=obstacle, back=home(stage))


def _resume(visit: Visit) -> Done:
    stage = known(visit)
    was = operate.resume(stage, reason=visit.form.text("reason"))
    undo = Undo("pause_stage", {"name": str(stage)}, "Pause") if was else None
    return Done(f"{stage} is open.", home(stage), undo)


def _ask_limit(visit: Visit) -> Question:
    stage = known(visit)
    seen = of(stage)
    says = ["For both lanes together and the whole cluster, from the next claim on, until the code declares others."]
    inputs = limiting.inputs(seen.rate_limit, seen.max_parallel, seen.burst)
    return Question(f"Limits of {stage}", says, "Set", [*inputs, REASON], back=home(stage))


def _limit(visit: Visit) -> Done:
    stage = known(visit)
    seen = of(stage)
    before = {"rate": seen.rate_limit, "max_parallel": seen.max_parallel, "burst": seen.burst or 1.0}
    changes = limiting.changes(visit.form, before)
    operate.limit(stage, **changes, reason=visit.form.text("reason"))
    back = limiting.fields(seen.rate_limit, seen.max_parallel, seen.burst)
    return Done(f"{stage}: {limiting.told(changes)}.", home(stage), Undo("limit_stage", {"name": str(stage), **back}))


PAGES = (Page("stages", "/stages", "stages.html", _listed),)
ACTS = (
    Act("pause_stage", "/stage/pause", _ask_pause, _pause),
    Act("resume_stage", "/stage/resume", _ask_resume, _resume),
    Act("limit_stage", "/stage/limit", _ask_limit, _limit),
)
