"""Finding what a person named: a reactive task by its name or the end of it, a pool by its name.

Promises:
- An exact name is found before anything else; the end of a name counts from a dot on, and only if one task has it.
- Of several, those that are still declared count; what is not found is told with the nearest name.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadRequest, NotFound
from app.near import nearest, shown
from triggers.model import ReactivePool, ReactiveTask

CANDIDATES = 10


def task(session: Session, words: str) -> str:
    """The full name of the task that is meant."""
    # What Postgres cannot hold is nobody's name.
    if not words.isprintable():
        raise unknown(session, words)
    ends = sa.func.right(ReactiveTask.name, len(words) + 1) == f".{words}"
    query = sa.select(ReactiveTask.name, ReactiveTask.removed_at).where(sa.or_(ReactiveTask.name == words, ends))
    found = session.execute(query.order_by(ReactiveTask.name)).all()
    if any(row.name == words for row in found):
        return words
    names = [row.name for row in found if row.removed_at is None] or [row.name for row in found]
    if not names:
        raise unknown(session, words)
    if len(names) > 1:
        more = f" and {len(names) - CANDIDATES} more" if len(names) > CANDIDATES else ""
        raise BadRequest(f"{words!r} may be one of {', '.join(names[:CANDIDATES])}{more}: write more of its name")
    return str(names[0])


def unknown(session: Session, words: str) -> NotFound:
    names = session.execute(sa.select(ReactiveTask.name)).scalars().all()
    tails = {name.rpartition(".")[2]: name for name in names}
    near = nearest(words, [*names, *tails])
    near = near and tails.get(near, near)
    hint = f"did you mean {near}?" if near else "'tidemill reactive list' shows those that there are"
    return NotFound(f"there is no reactive task {shown(words)}: {hint}")


def pool(session: Session, name: str) -> str:
    """The same name; refused where no such pool was ever declared."""
    names = list(session.execute(sa.select(ReactivePool.name).order_by(ReactivePool.name)).scalars())
    if name in names:
        return name
    near = nearest(name, names)
    known = ", ".join(names[:CANDIDATES]) or "none"
    raise NotFound(f"there is no pool {shown(name)}: " + (f"did you mean {near}?" if near else f"there is {known}"))
