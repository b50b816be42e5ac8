"""Finding what a person named, by what the database knows: the code of the stages need not be there.

Promises:
- A stage is named `kind.stage`, or by its queue, or by its name alone if one kind has such a stage. `kind.system` is
  the one that asks all others of the kind.
- Of several, those that are still declared count; what is not found is told with the nearest name.
- An id is its text; where the model of the kind is there too, it must be an id of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadRequest, NotFound
from app.near import nearest, shown
from stages.definition import PREFIX, SYSTEM, queue_of
from stages.identity import Codec
from stages.model import EntityKind, Stage
from stages.watched import kinds

CANDIDATES = 10
_ANY_ID = Codec((str,))


@dataclass(frozen=True)
class Known:
    """A stage as it is registered."""

    kind: str
    name: str
    #: None: the system stage.
    task: str | None = None
    removed: bool = False

    @property
    def queue(self) -> str:
        return queue_of(self.kind, self.name)

    def __str__(self) -> str:
        return f"{self.kind}.{self.name}"


def known_stages(session: Session) -> list[Known]:
    """By kind and name; with the system stage of each kind."""
    rows = session.execute(sa.select(Stage.kind, Stage.name, Stage.task, Stage.removed_at)).all()
    of = {row.kind for row in rows} | set(session.execute(sa.select(EntityKind.kind)).scalars())
    found = [Known(row.kind, row.name, row.task, row.removed_at is not None) for row in rows]
    return sorted([*found, *(Known(each, SYSTEM) for each in of)], key=lambda each: (each.kind, each.name))


def stage(session: Session, words: str) -> Known:
    return among(known_stages(session), words)


def among(known: Iterable[Known], words: str) -> Known:
    by_name = {str(each): each for each in known}
    if (exact := by_name.get(words.removeprefix(f"{PREFIX}."))) is not None:
        return exact
    named = [each for each in by_name.values() if each.name == words]
    found = [each for each in named if not each.removed] or named
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - CANDIDATES} more" if len(found) > CANDIDATES else ""
        several = ", ".join(str(each) for each in found[:CANDIDATES])
        raise BadRequest(f"{shown(words)} may be one of {several}{more}: write the kind too")
    tails = {each.name: full for full, each in by_name.items() if each.name != SYSTEM}
    near = nearest(words, [*by_name, *tails])
    near = near and tails.get(near, near)
    hint = f"did you mean {near}?" if near else "'tidemill stage list' shows those that there are"
    raise NotFound(f"there is no stage {shown(words)}: {hint}")


def kind(session: Session, words: str) -> str:
    """The same name; refused where no such kind was ever watched, nor has a stage."""
    return kind_among({each.kind for each in known_stages(session)}, words)


def kind_among(names: set[str], words: str) -> str:
    if words in names:
        return words
    near = nearest(words, sorted(names))
    there = ", ".join(sorted(names)[:CANDIDATES]) or "none"
    hint = f"did you mean {near}?" if near else f"there is {there}"
    raise NotFound(f"there is no kind {shown(words)}: {hint}")


def of_kind(session: Session, kind_words: str, words: str) -> Known:
    """A stage of a kind, by its name or `kind.name`."""
    every = known_stages(session)
    own = kind_among({each.kind for each in every}, kind_words)
    return among([each for each in every if each.kind == own], words)


def entity(kind_name: str, words: str) -> str:
    """The text of an id."""
    text = _ANY_ID.text_of(words)
    if (of := kinds.get(kind_name)) is not None:
        of.store.codec.id_of(text)
    return text
