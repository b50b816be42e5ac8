"""Questions about a moment are asked in two steps: which one, then what it would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.console.pages import addresses
from app.console.web.page import Input, Question, Visit

TEMPLATE = "moment.html"
#: So many tasks are named.
TASKS_MOST = 50


@dataclass(frozen=True)
class Outlook:
    """What would change: `(parameter, now, then)`; and the tasks that it concerns, with a word for each."""

    changes: Sequence[tuple[str, str, str]] = ()
    tasks: Sequence[tuple[str, str]] = ()
    tasks_say: str = ""

    def words(self) -> dict[str, Any]:
        return {"choose": None, "changes": self.changes, "tasks": self.tasks, "tasks_say": self.tasks_say}


def choose(visit: Visit, title: str, says: Sequence[str], inputs: Sequence[Input], back: str) -> Question:
    """The first step: sent by GET to the same path, so that it can be looked at before anything is done."""
    named = {each.name for each in inputs}
    hidden = {name: value for name, value in visit.query.given().items() if name not in named}
    path = visit.address.partition("?")[0]
    more = {"choose": {"path": path, "hidden": hidden, "inputs": inputs}}
    return Question(title, says, "", back=back, more=Outlook().words() | more)


def exact(moment: datetime | None) -> str:
    return "never" if moment is None else addresses.written(moment)
