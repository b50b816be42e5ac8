"""Starting an operation over processes that were searched for: what it would do, to how many, and the first of them."""

from __future__ import annotations

from app.console.pages.operations import RATE_INPUT, rate_of, started
from app.console.pages.searching import filters_of
from app.console.web.fields import address
from app.console.web.page import REASON, Act, Done, Input, Question, Visit
from app.db import transaction
from app.words import several
from processes.filters import Filters
from recovery import operations
from recovery.operations import Kind, Order
from recovery.operations.order import OF_PROCESSES, RESTARTING

SAYS = {
    Kind.CHECK: "Each process is looked at; what is wrong is written down, and nothing is changed.",
    Kind.RECOVER: "Each process is looked at, and what can be repaired is.",
    Kind.RESTART: "Each process is done again from its start; all that it did is forgotten.",
    Kind.RESTART_TASK: "Each broken task is done again, with what rests on it; the rest keeps its results.",
    Kind.ABORT: "Each process that has not finished is ended; a restart lets it go on.",
}
_TITLES = {
    Kind.CHECK: "Check {}?",
    Kind.RECOVER: "Repair {}?",
    Kind.RESTART: "Restart {} from the start?",
    Kind.RESTART_TASK: "Restart {}?",
    Kind.ABORT: "Abort {}?",
}
_ANSWERS = {
    Kind.CHECK: "Check them",
    Kind.RECOVER: "Repair them",
    Kind.RESTART: "Restart them",
    Kind.RESTART_TASK: "Restart them",
    Kind.ABORT: "Abort them",
}
_REPEAT = Input("repeat", "Also call again what is not repeatable; else such processes are skipped", kind="checkbox")
#: What says how, and not which.
_HOW = ("kind", "from_actor", "limit")


def _order(visit: Visit, *, repeat: bool = False) -> Order:
    kind = Kind(visit.query.choice("kind", [each.value for each in OF_PROCESSES]) or Kind.CHECK.value)
    with transaction() as session:
        filters = filters_of(session, visit.query)
    actor = visit.query.text("from_actor") if kind is Kind.RESTART_TASK else None
    limit = visit.query.number("limit")
    return Order(kind, filters, actor=actor, repeat=repeat and kind in RESTARTING, limit=limit)


def _many(order: Order, count: int) -> str:
    if order.kind is Kind.RESTART_TASK:
        return several(count, "broken task" if order.from_broken else "task")
    return "1 process" if count == 1 else f"{count} processes"


def _ask(visit: Visit) -> Question:
    order = _order(visit)
    found = operations.preview(order)
    says = [SAYS[order.kind], "What it is over is chosen when it starts. It can be paused and cancelled."]
    if order.of == Filters() and found.total:
        says.insert(0, "Nothing narrows this down: it is over everything that there is.")
    return Question(
        _TITLES[order.kind].format(_many(order, found.total)),
        says,
        _ANSWERS[order.kind],
        [RATE_INPUT, *([_REPEAT] if order.kind in RESTARTING else []), REASON],
        danger=order.kind in (Kind.RESTART, Kind.ABORT),
        obstacle=None if found.total else "Nothing matches.",
        back=address("/processes") + f"?{visit.query.changed(dict.fromkeys(_HOW))}",
        more={
            "preview": found,
            "kinds": [(each.value, SAYS[each]) for each in OF_PROCESSES],
            "kind": order.kind.value,
            "kept": [pair for pair in visit.query.pairs if pair[0] not in _HOW and pair[1]],
        },
    )


def _do(visit: Visit) -> Done:
    order = _order(visit, repeat=visit.form.flag("repeat"))
    made = operations.start(order, rate=rate_of(visit), reason=visit.form.text("reason"))
    return started(made, order.kind.value)


ACTS = (Act("start_operation", "/operations/start", _ask, _do, "operation_start.html"),)
