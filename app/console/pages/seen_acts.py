"""What a task has seen, taken back by an operator: to a time, or all of it; and put back again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.console.pages import addresses, choosing
from app.console.pages.choosing import Outlook
from app.console.web.page import REASON, Act, Done, Input, Question, Undo, Visit
from app.db import transaction
from app.errors import BadRequest
from triggers import operate, preview
from triggers.ctl import checked_name
from triggers.operate import Seen
from triggers.preview import Preview


def _task(visit: Visit) -> str:
    return visit.query.needed("task")


def _ask_rewind(visit: Visit) -> Question:
    name = _task(visit)
    title, back = f"Rewind {name}?", addresses.task(name)
    if (to := visit.query.text("to")) is None:
        says = ["What it has seen after a time is taken back: what came since then is new to it again."]
        return choosing.choose(visit, title, says, (Input("to", "To", hint=addresses.HINT, required=True),), back)
    moment = addresses.moment(visit.form.text("moment") or to, "to")
    with transaction() as session:
        found = preview.rewind(session, name, moment)
    says = [f"To {addresses.written(moment)}. {_outlook(found)}"]
    kept = Input("moment", "", addresses.written(moment), kind="hidden")
    obstacle = None if _changes(found) else "It has seen nothing later than that: there is nothing to take back."
    more = Outlook(_rows(found)).words()
    return Question(title, says, "Rewind", (kept, REASON), danger=True, obstacle=obstacle, back=back, more=more)


def _changes(found: Preview) -> bool:
    return bool(found.seen) or found.then.state == "running"


def _outlook(found: Preview) -> str:
    return found.outlook


def _rows(found: Preview) -> list[tuple[str, str, str]]:
    return [
        (f"{each.entity}.{each.parameter}", addresses.written(each.before), choosing.exact(each.after))
        for each in found.seen
    ]


def _rewind(visit: Visit) -> Done:
    name = _task(visit)
    moment = addresses.moment(visit.form.text("moment") or visit.query.needed("to"), "to")
    seen = operate.rewind(name, moment, reason=visit.form.text("reason", 1000))
    return Done(f"{name} has seen nothing after {addresses.written(moment)}.", addresses.task(name), _undo(name, seen))


def _ask_forget(visit: Visit) -> Question:
    name = _task(visit)
    with transaction() as session:
        found = preview.forget(session, name)
    says = ["Everything is new to it, as at its first run. Its runs stay in the list.", _outlook(found)]
    obstacle = None if _changes(found) else "It has seen nothing: there is nothing to forget."
    words = Outlook(_rows(found)).words()
    back = addresses.task(name)
    title = f"Forget what {name} has seen?"
    return Question(title, says, "Forget", (REASON,), danger=True, obstacle=obstacle, back=back, more=words)


def _forget(visit: Visit) -> Done:
    name = _task(visit)
    seen = operate.forget(name, reason=visit.form.text("reason", 1000))
    return Done(f"{name} has seen nothing now.", addresses.task(name), _undo(name, seen))


#: More than these do not fit into a button.
PARAMETERS_MOST = 10


def _undo(name: str, seen: Sequence[Seen]) -> Undo | None:
    if not seen or len(seen) > PARAMETERS_MOST:
        return None
    told = [
        [each.entity, each.parameter, each.before.isoformat(), each.after and each.after.isoformat()] for each in seen
    ]
    return Undo("reactive_put_back", {"task": name, "seen": json.dumps(told)}, "Put back what it had seen")


def _seen(visit: Visit) -> list[Seen]:
    text = visit.form.text("seen", 8000) or visit.query.needed("seen", 8000)
    try:
        told = [(checked_name(entity, word), was, now) for entity, word, was, now in json.loads(text)]
        return [Seen(*name, _moment(was), None if now is None else _moment(now)) for name, was, now in told]
    except (TypeError, ValueError, RecursionError):
        raise BadRequest("seen says in no form that is known what the task had seen") from None


def _moment(text: Any) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    return found


def _ask_put_back(visit: Visit) -> Question:
    name, seen = _task(visit), _seen(visit)
    rows = [(f"{s.entity}.{s.parameter}", choosing.exact(s.after), addresses.written(s.before)) for s in seen]
    says = ["What it had seen before is seen again, unless it has seen something since."]
    kept = Input("seen", "", visit.form.text("seen", 8000) or visit.query.needed("seen", 8000), kind="hidden")
    title = f"Put back what {name} had seen?"
    more = Outlook(rows).words()
    return Question(title, says, "Put back", (kept, REASON), back=addresses.task(name), more=more)


def _put_back(visit: Visit) -> Done:
    name = _task(visit)
    operate.put_back(name, _seen(visit), reason=visit.form.text("reason", 1000))
    return Done(f"{name} has seen again what it had seen.", addresses.task(name))


ACTS = (
    Act("reactive_rewind", "/reactive/rewind", _ask_rewind, _rewind, choosing.TEMPLATE),
    Act("reactive_forget", "/reactive/forget", _ask_forget, _forget, choosing.TEMPLATE),
    Act("reactive_put_back", "/reactive/put-back", _ask_put_back, _put_back, choosing.TEMPLATE),
)
