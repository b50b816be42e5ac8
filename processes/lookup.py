"""Finding what a person named, by what the database knows: the code of the actors need not be there.

What is not found is told with the nearest name. Names never go into a statement before they are found to be one.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import NotFound
from app.near import nearest, shown
from processes.definition import declared
from processes.model import PREFERENCES, PREFIX, PROCESS
from processes.states import ProcessState


def actor(session: Session, words: str) -> str:
    """An actor or a decider, by its name or that of its queue."""
    return among(_registered(session), words, "actor", "'tidemill actor list' shows those that there are")


def decider(session: Session, words: str) -> str:
    """One that a process may begin with: known to the database, or imported here."""
    names = _registered(session)
    known = {name for name, decides in names.items() if decides} | {each.name for each in declared.values()}
    return among(known | names.keys(), words, "decider", "'tidemill actor list' shows those that there are")


def process_type(session: Session, words: str) -> str:
    """One of which there are, or may be, processes."""
    known = {name for name, decides in _registered(session).items() if decides}
    if words in known:
        return words
    if words.isprintable():
        any_state = PROCESS.c.state.in_(list(ProcessState))
        of_type = sa.select(PROCESS.c.id).where(any_state, PROCESS.c.name == words).limit(1)
        if session.execute(of_type).first() is not None:
            return words
    return among(known, words, "type of processes", "'tidemill actor list' shows the deciders that there are")


def _registered(session: Session) -> dict[str, bool]:
    rows = session.execute(sa.select(PREFERENCES.c.name, PREFERENCES.c.decider))
    return {row.name: row.decider for row in rows}


def among(names: Iterable[str], words: str, kind: str, help_: str) -> str:
    known = set(names)
    name = words if words in known else words.removeprefix(f"{PREFIX}.")
    if name in known:
        return name
    near = nearest(name, known)
    raise NotFound(f"there is no {kind} {shown(words)}: {f'did you mean {near}?' if near else help_}")
