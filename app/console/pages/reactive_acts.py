"""What an operator does with a reactive task: pause, resume, release, run by hand, cancel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy.orm import Session

from app import workers
from app.console.pages import addresses
from app.console.web.page import REASON, Act, Done, Input, Question, Undo, Visit
from app.db import transaction
from app.errors import BadRequest
from triggers import operate
from triggers.model import RunId
from triggers.why import STATES, Why, why

NO_REASON = "by an operator"


def _task(visit: Visit) -> str:
    return visit.query.needed("task")


def _reason(visit: Visit) -> str | None:
    return visit.form.text("reason", 1000)


def _now(name: str) -> Why:
    with transaction() as session:
        return why(session, name)


def _told(name: str, done: str) -> str:
    return f"{name} {done}; now it is {STATES[_now(name).state]}."


def _ask_pause(visit: Visit) -> Question:
    now = _now(_task(visit))
    says = ["It starts no more until it is resumed. What it has seen stays as it is."]
    if now.state == "waiting":
        says.append(f"Run {now.run['id']}, which waits, is taken back.")
    if now.state == "running":
        says.append(f"Run {now.run['id']}, which works, ends as usual.")
    return _question(now, "Pause", says)


def _question(now: Why, verb: str, says: list[str], *, danger: bool = False, obstacle: str | None = None) -> Question:
    back = addresses.task(now.task)
    return Question(f"{verb} {now.task}?", says, verb, (REASON,), danger=danger, obstacle=obstacle, back=back)


def _pause(visit: Visit) -> Done:
    name = _task(visit)
    new = operate.pause(name, reason=_reason(visit))
    undo = Undo("reactive_resume", {"task": name}, "Resume") if new else None
    return Done(f"{name} is paused." if new else f"{name} was paused already.", addresses.task(name), undo)


def _ask_resume(visit: Visit) -> Question:
    now = _now(_task(visit))
    starts = "Its trigger holds: it starts at once." if now.fired else "Its trigger does not hold: it starts later."
    return _question(now, "Resume", [starts])


def _resume(visit: Visit) -> Done:
    name = _task(visit)
    if not operate.resume(name, reason=_reason(visit)):
        return Done(f"{name} was not paused.", addresses.task(name))
    return Done(_told(name, "is resumed"), addresses.task(name), Undo("reactive_pause", {"task": name}, "Pause again"))


def _ask_release(visit: Visit) -> Question:
    now = _now(_task(visit))
    when = "at once: its trigger holds" if now.fired else "when its trigger holds"
    says = [f"Its failures are forgotten. It is tried again {when}.", *now.holds[:1]]
    return _question(now, "Release", says)


def _release(visit: Visit) -> Done:
    name = _task(visit)
    if not operate.release(name, reason=_reason(visit)):
        return Done(f"{name} was not quarantined.", addresses.task(name))
    return Done(_told(name, "is released"), addresses.task(name))


def _ask_run(visit: Visit) -> Question:
    name = _task(visit)
    with transaction() as session:
        now = why(session, name)
        notes = _notes(session, now)
    obstacle = None
    if now.state in ("waiting", "running"):
        obstacle = f"Run {now.run['id']} is {now.state}: wait for its end, or cancel it first."
    elif now.state == "removed":
        obstacle = "No module declares it any more: no worker can run it."
    inputs = (
        Input("record", "Remember what it was given as seen", kind="checkbox", hint="Its trigger goes on from there."),
        Input(
            "from", "From", hint=f"Of a window to work on, instead of what is new; may be left out. {addresses.HINT}"
        ),
        Input("to", "To", hint="The end of that window."),
        REASON,
    )
    says = ["It runs once, whatever its trigger says.", *notes]
    return Question(f"Run {name} now?", says, "Run", inputs, obstacle=obstacle, back=addresses.task(name))


def _notes(session: Session, now: Why) -> list[str]:
    queue = str(now.run.get("queue", "")) or None
    if queue is not None and queue not in workers.slots(session):
        return [f"No live worker takes {queue}: it waits until one does."]
    return []


def _run(visit: Visit) -> Done:
    name = _task(visit)
    record = visit.form.flag("record")
    run_id = operate.start(name, record=record, window=_window(visit), reason=_reason(visit))
    undo = Undo("reactive_cancel", {"task": name, "run": run_id, "reason": "taken back"}, "Cancel it")
    return Done(f"Run {run_id} of {name} waits for a worker.", addresses.task(name), undo)


def _window(visit: Visit) -> tuple[datetime, datetime] | None:
    since, until = visit.form.text("from"), visit.form.text("to")
    if since is None and until is None:
        return None
    if since is None or until is None:
        raise BadRequest("a window has two ends: give both From and To")
    return addresses.moment(since, "From"), addresses.moment(until, "To")


def _ask_cancel(visit: Visit) -> Question:
    now, run = _now(_task(visit)), visit.query.number("run")
    obstacle = None
    if now.state not in ("waiting", "running"):
        obstacle = "It has no run that waits or works."
    elif run is not None and now.run["id"] != run:
        obstacle = f"Run {run} has ended; run {now.run['id']} is {now.state} now."
    says = ["What it has seen stays as it was."]
    if now.run.get("kind") == "regular":
        says.append("It does not start again until its input moves, or it is released.")
    if now.state == "running":
        says.append("The worker learns of it within a third of its lease, and stops.")
    return _question(now, "Cancel the run of", says, danger=True, obstacle=obstacle)


def _cancel(visit: Visit) -> Done:
    name, run = _task(visit), visit.query.number("run")
    run_id = operate.cancel(name, reason=_reason(visit) or NO_REASON, run=None if run is None else RunId(run))
    return Done(f"Run {run_id} of {name} is cancelled.", addresses.task(name))


def _act(name: str, ask: Callable[[Visit], Question], do: Callable[[Visit], Done]) -> Act:
    return Act(f"reactive_{name}", f"/reactive/{name}", ask, do)


ACTS = (
    _act("pause", _ask_pause, _pause),
    _act("resume", _ask_resume, _resume),
    _act("release", _ask_release, _release),
    _act("run", _ask_run, _run),
    _act("cancel", _ask_cancel, _cancel),
)
