"""The control table, moved by an operator: forward, or anywhere with a reason."""

from __future__ import annotations

from datetime import datetime

from app.console.pages import addresses, choosing
from app.console.pages.choosing import TASKS_MOST, Outlook
from app.console.web.page import Act, Done, Input, Question, Undo, Visit
from app.db import transaction
from triggers import ctl, foresee
from triggers.ctl import Parameter, checked_name

TAKEN_BACK = "taken back: it was moved by mistake"


def _name(visit: Visit) -> Parameter:
    return checked_name(visit.query.needed("entity", 1000), visit.query.needed("parameter", 1000))


def _value(visit: Visit) -> datetime:
    """That which was shown; what is given as `now` or `2h ago` would be another one meanwhile."""
    return addresses.moment(visit.form.text("moment") or visit.query.needed("value"), "value")


def _chosen(visit: Visit) -> bool:
    return all(visit.query.text(word) for word in ("parameter", "value"))


def _choose(visit: Visit, title: str, says: str) -> Question:
    entity = visit.query.needed("entity", 1000)
    inputs = (
        Input("parameter", "Parameter", visit.query.text("parameter", 1000) or "", required=True),
        Input("value", "Value", visit.query.text("value") or "", addresses.HINT, required=True),
    )
    return choosing.choose(visit, title, [says], inputs, addresses.dataset(entity))


def _ask_advance(visit: Visit) -> Question:
    entity = visit.query.needed("entity", 1000)
    title, back = f"Advance {entity}?", addresses.dataset(entity)
    if not _chosen(visit):
        return _choose(visit, title, "The data is there up to this moment: a parameter moves forward, never back.")
    name, value = _name(visit), _value(visit)
    moved = foresee.would_move({name: value})
    before = ctl.get(*name)
    with transaction() as session:
        starts = foresee.would_start(session, {name: value} if moved else {})
    tasks = [(each.task, "at once" if each.held is None else f"not yet: {each.held}") for each in starts[:TASKS_MOST]]
    said = f"{len(starts)} tasks would start:" if len(starts) != 1 else "One task would start:"
    outlook = Outlook([(".".join(name), choosing.exact(before), addresses.written(value))], tasks, said)
    says = [] if starts else ["No task would start."]
    obstacle = None if moved else "It is there already: nothing would move."
    inputs = (Input("moment", "", addresses.written(value), kind="hidden"),)
    return Question(title, says, "Advance", inputs, obstacle=obstacle, back=back, more=outlook.words())


def _advance(visit: Visit) -> Done:
    name, value = _name(visit), _value(visit)
    before = ctl.get(*name)
    moved = ctl.advance_many({name: value})
    words = ".".join(name)
    if not moved:
        return Done(f"{words} was at {addresses.written(value)} already.", addresses.dataset(name[0]))
    return Done(f"{words} is at {addresses.written(value)}.", addresses.dataset(name[0]), _back(name, before))


def _back(name: Parameter, before: datetime | None) -> Undo | None:
    """Nothing can be made to have no value again."""
    if before is None:
        return None
    written = addresses.written(before)
    fields = {"entity": name[0], "parameter": name[1], "value": written, "reason": TAKEN_BACK}
    return Undo("ctl_restate", fields, f"Restate to {written}")


def _ask_restate(visit: Visit) -> Question:
    entity = visit.query.needed("entity", 1000)
    title, back = f"Restate {entity}?", addresses.dataset(entity)
    if not _chosen(visit):
        return _choose(visit, title, "What was said of the data was wrong: a parameter is set to any value, back too.")
    name, value = _name(visit), _value(visit)
    before = ctl.get(*name)
    with transaction() as session:
        tasks = ctl.dependents(session, [name], limit=TASKS_MOST + 1)
    more = f"More than {TASKS_MOST}" if len(tasks) > TASKS_MOST else str(len(tasks))
    said = f"{more} tasks rest on it. Look at each afterwards: rewind or forget what it has seen, or run it by hand."
    listed = [(each.task, "rests on what it has seen of it" if each.latched else "") for each in tasks[:TASKS_MOST]]
    outlook = Outlook([(".".join(name), choosing.exact(before), addresses.written(value))], listed, said)
    says = [] if tasks else ["No task rests on it."]
    why = Input("reason", "Why", hint="Why the value was wrong; it is kept in the audit.", required=True)
    inputs = (Input("moment", "", addresses.written(value), kind="hidden"), why)
    return Question(title, says, "Restate", inputs, danger=True, back=back, more=outlook.words())


def _restate(visit: Visit) -> Done:
    name, value = _name(visit), _value(visit)
    before = ctl.get(*name)
    restated = ctl.restate_many({name: value}, reason=visit.form.needed("reason", ctl.REASON_LIMIT))
    count = len(restated.dependents)
    rest = f" {count} tasks rest on it: see below what each has seen." if count else ""
    to = addresses.dataset(name[0])
    return Done(f"{'.'.join(name)} is restated to {addresses.written(value)}.{rest}", to, _back(name, before))


ACTS = (
    Act("ctl_advance", "/dataset/advance", _ask_advance, _advance, choosing.TEMPLATE),
    Act("ctl_restate", "/dataset/restate", _ask_restate, _restate, choosing.TEMPLATE),
)
