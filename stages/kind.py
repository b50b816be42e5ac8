"""A kind of entities: a watched table, by whatever store its rows are read and saved. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from app.checks import checked_count, checked_word
from app.errors import BadRequest
from stages.store import Store

MODES = ("exclusive", "optimistic")
HOPS = range(1, 1001)
NAME_LIMIT = 60
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def checked_name(whose: str, option: str, value: object) -> str:
    """It becomes a part of the names of queues."""
    if type(value) is not str or not _NAME.fullmatch(value) or len(value) > NAME_LIMIT:
        raise BadRequest(
            f"{whose}: {option}={value!r:.100} must be at most {NAME_LIMIT} small letters, digits and '_', the first "
            f"of them a letter: give one with {option}='…'"
        )
    return value


def checked_names(option: str, value: Any) -> Collection[str]:
    """Of attributes."""
    if isinstance(value, str) or not isinstance(value, Collection) or not all(isinstance(each, str) for each in value):
        raise BadRequest(f"{option}={value!r:.100} must list the names of attributes, as in {option}=['status']")
    return value


@dataclass(frozen=True)
class Kind:
    name: str
    store: Store
    #: As the database reads it, with its schema where it has one: `shop.offer`, `shop."Offer"`.
    table: str
    #: Whether at most one stage works on an entity at any moment, or several do and a conflict is tried again (S12).
    mode: str = MODES[0]
    #: Visits in one chain of causes; more are a loop (S11).
    max_hops: int = 30

    def __post_init__(self) -> None:
        whose = f"table {self.table}"
        checked_name(whose, "kind", self.name)
        checked_word(whose, "mode", self.mode, MODES)
        checked_count(whose, "max_hops", self.max_hops, HOPS)
