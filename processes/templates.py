"""Searches that are saved under a name, with parameters: `{shop}` in one of its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app import audit
from app.checks import checked_line
from app.errors import NotFound, TooLarge
from app.near import nearest, shown
from processes.filters import Filters, checked_words, filled, parameters_of, read
from processes.model import TEMPLATE

MOST, NAME_LIMIT = 1_000, 100


@dataclass(frozen=True)
class Template:
    name: str
    #: As `processes.filters` reads them.
    filters: Mapping[str, Any]
    created_by: str
    at: datetime

    @property
    def parameters(self) -> list[str]:
        return parameters_of(self.filters)


def save(session: Session, name: str, words: Mapping[str, Any]) -> bool:
    """In place of the one that has the name: true if there was one."""
    checked_line("a template", "name", name, NAME_LIMIT)
    kept = checked_words(words, datetime.now(UTC))
    before = session.execute(sa.select(TEMPLATE.c.filters).where(TEMPLATE.c.name == name)).scalar_one_or_none()
    if before is None and session.execute(sa.select(sa.func.count()).select_from(TEMPLATE)).scalar_one() >= MOST:
        raise TooLarge(f"there are {MOST} templates already: remove some with 'tidemill process templates remove'")
    values = {"filters": kept, "created_by": audit.actor(), "at": sa.func.now()}
    insert = postgresql.insert(TEMPLATE).values(name=name, **values)
    session.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values))
    audit.record(session, "template.save", name, filters=kept, before=before)
    return before is not None


def listed(session: Session) -> list[Template]:
    """By name."""
    return [Template(**row._mapping) for row in session.execute(sa.select(*TEMPLATE.c).order_by(TEMPLATE.c.name))]


def get(session: Session, name: str) -> Template:
    """`NotFound` where there is none, with the nearest name."""
    found = {each.name: each for each in listed(session)}
    if name in found:
        return found[name]
    near = nearest(name, found)
    help_ = f"did you mean {near}?" if near else "'tidemill process templates' shows those that there are"
    raise NotFound(f"there is no template {shown(name)}: {help_}")


def remove(session: Session, name: str) -> None:
    before = get(session, name)
    session.execute(sa.delete(TEMPLATE).where(TEMPLATE.c.name == name))
    audit.record(session, "template.remove", name, before=dict(before.filters))


def filters(session: Session, name: str, parameters: Mapping[str, Any]) -> Filters:
    """What it searches for now, with values for its parameters."""
    words = filled(get(session, name).filters, parameters, f"the template {shown(name)}")
    return read(words, datetime.now(UTC))
