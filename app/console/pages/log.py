"""The log of jobs: past executions, searched for, and put in again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import defer

from app.clock import moment
from app.console.pages.job import home
from app.console.pages.patience import patient
from app.console.web.fields import Fields
from app.console.web.memory import RememberedBy
from app.console.web.page import REASON, Act, Done, Page, Question, Undo, Visit
from app.db import transaction
from app.errors import BadRequest, NotFound
from app.jobs import operate
from app.jobs.model import JOB_LOG, JobLog, Outcome
from app.jobs.search import Filters, last_of_each, log_query
from app.words import several

SHOWN = 50
#: How many are put in again at once.
RERUN_MOST = 1000
SECONDS = 1.0
WORDS = ("task", "queue", "key", "worker", "error", "arguments")
TIMES = ("since", "until")
_DEAR = (JobLog.args, JobLog.kwargs, JobLog.result, JobLog.traceback)


def filters_of(query: Fields) -> Filters:
    outcome = query.choice("outcome", list(Outcome))
    words: dict[str, Any] = {word: query.text(word) for word in WORDS}
    times: dict[str, Any] = {word: _past(word, text) for word in TIMES if (text := query.text(word))}
    return Filters(**words, **times, outcome=Outcome(outcome) if outcome else None, job_id=query.number("job"))


def _past(word: str, text: str) -> datetime:
    """A span counts backwards from now."""
    try:
        found = moment(text)
        return found if isinstance(found, datetime) else datetime.now(UTC) - found
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"{word}: {error}") from None


def _search(query: Fields) -> list[JobLog]:
    found = log_query(filters_of(query)).options(*(defer(column) for column in _DEAR))
    ended, number = JobLog.ended_at, JobLog.id
    if before := query.text("before"):
        at, last = _place(before)
        # The first says what the index has; together they are what comes after this row.
        found = found.where(ended <= at, sa.or_(ended < at, number < last))
    with patient() as session:
        return list(session.scalars(found.order_by(ended.desc(), number.desc()).limit(SHOWN + 1)))


def _place(text: str) -> tuple[datetime, int]:
    """Where the page before ended."""
    moment_text, _, number = text.partition("~")
    try:
        at = datetime.fromisoformat(moment_text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not (number.isascii() and number.isdecimal() and len(number) < 19):
        raise BadRequest(f"before={text!r:.100} is no place in the log: begin at its beginning")
    return at, int(number)


_found = RememberedBy(_search, SECONDS).kept()


def _listed(visit: Visit) -> Mapping[str, Any]:
    wrong, rows = None, list[JobLog]()
    try:
        rows = _found.get(visit.query)
    except BadRequest as error:
        wrong = str(error)
    last = rows[SHOWN - 1] if len(rows) > SHOWN else None
    return {
        "rows": rows[:SHOWN],
        "older": None if last is None else f"{last.ended_at.isoformat()}~{last.id}",
        "wrong": wrong,
        "outcomes": list(Outcome),
        "filtered": any(visit.query.text(word) for word in (*WORDS, *TIMES, "outcome", "job")),
    }


def _entry(visit: Visit) -> Any:
    entry_id = visit.numbers["entry_id"]
    wanted = ("id", "job_id", "task", "queue", "outcome")
    with transaction() as session:
        query = sa.select(*(JOB_LOG.c[name] for name in wanted)).where(JOB_LOG.c.id == entry_id)
        found = session.execute(query).one_or_none()
    if found is None:
        raise NotFound(f"the log has no execution {entry_id}")
    return found


def _ask_rerun(visit: Visit) -> Question:
    entry = _entry(visit)
    says = [
        f"{entry.task:.200} with the same arguments, queue and priority, as a new job.",
        f"The execution was {entry.outcome}.",
    ]
    title = f"Put job {entry.job_id} in again?"
    return Question(title, says, "Put it in again", [REASON], back=home(entry.job_id))


def _rerun(visit: Visit) -> Done:
    entry = _entry(visit)
    [new] = operate.rerun([entry.id], reason=visit.form.text("reason"))
    undo = Undo("cancel_job", {"job_id": new}, "Cancel it")
    return Done(f"Job {entry.job_id} is put in again, as job {new}.", home(new), undo)


def _matching(visit: Visit) -> list[int]:
    filters = filters_of(visit.query)
    if filters == Filters():
        raise BadRequest("nothing is searched for: everything that ever ran is not put in again")
    with patient() as session:
        return last_of_each(session, filters, RERUN_MOST + 1)


def _back(visit: Visit) -> str:
    return f"/log?{visit.query.changed({'before': None})}"


def _ask_rerun_found(visit: Visit) -> Question:
    found = len(_matching(visit))
    says = ["Each job once, however many of its executions are found: with the same arguments, as a new job."]
    if found > RERUN_MOST:
        says.append(f"More are found; the latest {RERUN_MOST} are taken.")
    number = several(min(found, RERUN_MOST), "job")
    obstacle = None if found else "Nothing is found."
    inputs = [REASON]
    return Question(
        f"Put {number} in again?",
        says,
        f"Put {number} in again",
        inputs,
        danger=True,
        obstacle=obstacle,
        back=_back(visit),
    )


def _rerun_found(visit: Visit) -> Done:
    chosen = _matching(visit)[:RERUN_MOST]
    if not chosen:
        raise BadRequest("nothing is found any more")
    new = operate.rerun(chosen, reason=visit.form.text("reason"))
    return Done(f"{several(len(new), 'job')} put in again, the first as job {min(new)}.", "/jobs")


PAGES = (Page("log", "/log", "log.html", _listed),)
ACTS = (
    Act("rerun_job", "/log/{entry_id}/rerun", _ask_rerun, _rerun),
    Act("rerun_found", "/log/rerun", _ask_rerun_found, _rerun_found),
)
