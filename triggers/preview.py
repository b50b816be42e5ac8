"""What it would come to if a person took back what a task has seen: shown before it is done. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from triggers import values
from triggers.ctl import checked_value
from triggers.model import CtlSeen
from triggers.operate import Seen
from triggers.trigger import from_json
from triggers.why import Why, assess, registered


@dataclass(frozen=True)
class Preview:
    """`then`: the task as the evaluation that follows would find it; its state `ready` means that it starts at once."""

    seen: tuple[Seen, ...]
    then: Why

    @property
    def outlook(self) -> str:
        match self.then.state:
            case "ready":
                return "The task would start at once."
            case "idle":
                return "The task would not start: its trigger does not hold."
            case "running":
                return "A run works just now: at its end it is not remembered, and the task is evaluated anew."
            case "waiting":
                return "A run waits already: it would be given what is new then."
            case state:
                return f"The task would not start: it is {state}."


def rewind(session: Session, name: str, to: datetime) -> Preview:
    return _changed(session, name, checked_value((name, "to"), to))


def forget(session: Session, name: str) -> Preview:
    return _changed(session, name, None)


def _changed(session: Session, name: str, to: datetime | None) -> Preview:
    row = registered(session, name)
    trigger = from_json(row.trigger)
    of_task = sa.select(CtlSeen.entity, CtlSeen.parameter, CtlSeen.value).where(CtlSeen.task == name)
    if to is not None:
        of_task = of_task.where(CtlSeen.value > to)
    gone = session.execute(of_task.order_by(CtlSeen.entity, CtlSeen.parameter)).all()
    found = values.read(session, [(name, trigger)])
    seen = found.seen.setdefault(name, {})
    for entity, parameter, _ in gone:
        if to is None:
            seen.pop((entity, parameter), None)
        elif (entity, parameter) in seen:
            seen[(entity, parameter)] = to
    changes = tuple(Seen(entity, parameter, before, to) for entity, parameter, before in gone)
    return Preview(changes, assess(session, row, trigger, found))
