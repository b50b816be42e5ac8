"""One reactive task: why it runs or does not, now or at a past evaluation; its time line, runs and missed windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from app.console.drawing import timeline
from app.console.pages import addresses
from app.console.web.page import Page, Visit
from app.db import transaction
from app.errors import BadRequest
from triggers import listing, missed
from triggers.looking import freshness, history
from triggers.looking.rooms import rooms
from triggers.trigger import from_json
from triggers.values import windows
from triggers.why import STATES, Why, evaluated, registered, why

RUNS_SHOWN, EVALUATIONS_SHOWN, MISSED_SHOWN = 15, 12, 15


def _read(visit: Visit) -> Mapping[str, Any]:
    name, query = visit.query.needed("task"), visit.query
    length = query.choice("length", tuple(history.LENGTHS))
    before = query.number("before")
    with transaction() as session:
        row = registered(session, name)
        trigger = from_json(row.trigger)
        past = _past(session, visit, name)
        now = why(session, name)
        drawn = history.of_task(session, name, trigger.parameters, now.at, length)
        runs = listing.runs(session, name, limit=RUNS_SHOWN + 1, before=before)
        return {
            "task": row,
            "short": name.rpartition(".")[2],
            "why": past or now,
            "now": now,
            "past": past is not None,
            "says": STATES[(past or now).state],
            "conditions": list(_conditions((past or now).tree)),
            "picture": timeline.draw(name, drawn, trigger.leaves, past.at if past else None),
            "history": drawn,
            "lengths": tuple(history.LENGTHS),
            "runs": runs[:RUNS_SHOWN],
            "older": runs[RUNS_SHOWN - 1].id if len(runs) > RUNS_SHOWN else None,
            "windows": {run.id: _windows(run.checked) for run in runs},
            "missed": missed.listed(session, task=name, limit=MISSED_SHOWN),
            "evaluations": history.evaluations(session, name, limit=EVALUATIONS_SHOWN),
            "needs": _fresh(session, trigger.parameters),
            "produces": _fresh(session, [(entity, parameter) for entity, parameter in row.produces or ()]),
            "room": rooms(session).get(row.pool),
        }


def _past(session: Session, visit: Visit, name: str) -> Why | None:
    number, at = visit.query.number("evaluation"), visit.query.text("at")
    if number is not None:
        return evaluated(session, name, number)
    if at is None:
        return None
    moment = addresses.moment(at, "at")
    if moment > datetime.now(UTC):
        raise BadRequest(f"at={addresses.written(moment)} lies ahead: write a time, or how long ago, as in '2h ago'")
    return why(session, name, moment)


def _conditions(tree: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """With how far each has come on its way from last seen to what is enough, where that can be said."""
    for node in tree.get("children", [tree]):
        seen, current, threshold = (node[word] for word in ("last_seen", "current", "threshold"))
        part = None
        if node["kind"] in ("delta", "chunk_delta") and seen and current and threshold:
            whole = _moment(threshold) - _moment(seen)
            part = max(0.0, min(1.0, (_moment(current) - _moment(seen)) / whole))
        yield dict(node) | {"part": part}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _windows(checked: Any) -> list[tuple[str, datetime | None, datetime | None]]:
    return [(".".join(name), *ends) for name, ends in windows(checked or ()).items()]


def _fresh(session: Session, names: Iterable[tuple[str, str]]) -> list[tuple[str, str, freshness.Fresh | None]]:
    wanted = list(names)
    found = freshness.of(session, {entity for entity, _ in wanted})
    known = {(each.entity, each.parameter): each for some in found.values() for each in some}
    return [(entity, parameter, known.get((entity, parameter))) for entity, parameter in wanted]


PAGES = (Page("reactive_task", "/reactive/task", "reactive_task.html", _read),)
