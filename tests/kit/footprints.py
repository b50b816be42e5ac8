"""Which tables a statement names, and whether others can notice it.

Two statements that have no table in common, or only read what they have in common, come to the same in either order.
So one that meets nothing of all that the other sessions do need not be tried at every place: it follows the one before.
What it does by functions of the database and by the triggers of tables that it writes, these say, by their sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_NAMES = re.compile(r"\b(?:tidemill|public)\.\w+")
_WRITTEN = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) ((?:tidemill|public)\.\w+)", re.IGNORECASE)
#: Of which table, may be hard to see.
_LOCKS = re.compile(r"\b(FOR (NO KEY )?UPDATE|FOR (KEY )?SHARE|LOCK TABLE|TRUNCATE|MERGE)\b", re.IGNORECASE)
_PREPARED = re.compile(r"\b(PREPARE|EXECUTE) (\w+)")
_TABLES = """
    SELECT nspname || '.' || relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
    WHERE relkind = 'r' AND nspname IN ('tidemill', 'public')
"""
_FUNCTIONS = "SELECT 'tidemill.' || proname, prosrc FROM pg_proc WHERE pronamespace = 'tidemill'::regnamespace"
_TRIGGERS = """
    SELECT n.nspname || '.' || relname, 'tidemill.' || proname FROM pg_trigger
        JOIN pg_class c ON c.oid = tgrelid JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_proc p ON p.oid = tgfoid
    WHERE NOT tgisinternal
"""


@dataclass
class Footprint:
    """Of a session, as far as it was seen."""

    named: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)


class Footprints:
    """`cursor`: of the database, for what its triggers and functions hide."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        #: What functions name, and which are called where a table is written.
        self._inside: dict[str, set[str]] = {}
        self._called: dict[str, set[str]] = {}
        self._known = set[str]()
        self._prepared: dict[str, str] = {}
        self.of: dict[str, Footprint] = {}
        #: Since this was said to be false.
        self.grown = False

    def forget(self) -> None:
        """Other sessions are to come, on tables that may have other triggers."""
        self.of.clear()
        self._cursor.execute(_FUNCTIONS)
        self._inside = {name: set(_NAMES.findall(source)) for name, source in self._cursor.fetchall()}
        self._cursor.execute(_TABLES)
        self._known = {*self._inside, *(name for (name,) in self._cursor.fetchall())}
        self._called = {}
        self._cursor.execute(_TRIGGERS)
        for table, function in self._cursor.fetchall():
            self._called.setdefault(table, set()).add(function)

    def touched(self, text: str) -> tuple[set[str], set[str]]:
        """Named, and perhaps written."""
        named = self._known.intersection(_NAMES.findall(text))
        written = set(named) if _LOCKS.search(text) else self._known.intersection(_WRITTEN.findall(text))
        todo = [*named]
        while todo:
            name = todo.pop()
            more = self._inside.get(name, set()) | (self._called.get(name, set()) if name in written else set())
            if new := more - (written if name in self._inside else named):
                named |= new
                written |= new
                todo += new
        return named & self._known, written & self._known

    def text(self, statement: str) -> str:
        """Of a prepared one, what was prepared."""
        found = _PREPARED.search(statement)
        if found is None:
            return statement
        if found[1] == "PREPARE":
            self._prepared[found[2]] = statement
        return self._prepared[found[2]]

    def learn(self, session: str, text: str) -> None:
        own, (named, written) = self.of.setdefault(session, Footprint()), self.touched(text)
        own.named |= named
        own.written |= written

    def noticed(self, session: str, text: str) -> bool:
        """Whether it meets anything that another session was seen to do. What this one was not seen to do so far is
        learned, and may be something that another one met without notice (`grown`)."""
        named, written = self.touched(text)
        own = self.of.setdefault(session, Footprint())
        if not (named <= own.named and written <= own.written):
            self.grown = True
            self.learn(session, text)
        others = [each for name, each in self.of.items() if name != session]
        return not named or any(written & each.named or named & each.written for each in others)
