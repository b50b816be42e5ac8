"""Which tables a statement names, and whether others can notice it.

Two statements that have no table in common, or only read what they have in common, come to the same in either order.
So one that meets nothing of all that the other sessions do need not be tried at every place: it follows the one before.
What a statement does by a trigger, or by a function that is not pure, it does not say: such a one always counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_NAMES = re.compile(r'\b(?:tidemill|public)\."?(\w+)')
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|TRUNCATE|LOCK|SHARE)\b", re.IGNORECASE)
_PREPARED = re.compile(r"\b(PREPARE|EXECUTE) (\w+)")
_OPAQUE = """
    SELECT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal
    UNION SELECT proname FROM pg_proc WHERE pronamespace = 'tidemill'::regnamespace AND provolatile = 'v'
"""


@dataclass
class Footprint:
    """Of a session, as far as it was seen."""

    named: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)


class Footprints:
    """`cursor`: of the database, for what its triggers and functions hide."""

    def __init__(self, cursor: Any) -> None:
        cursor.execute(_OPAQUE)
        self._opaque = {name.rpartition(".")[2].strip('"') for (name,) in cursor.fetchall()}
        self._prepared: dict[str, str] = {}
        self.of: dict[str, Footprint] = {}

    def text(self, statement: str) -> str:
        """Of a prepared one, what was prepared."""
        found = _PREPARED.search(statement)
        if found is None:
            return statement
        if found[1] == "PREPARE":
            self._prepared[found[2]] = statement
        return self._prepared[found[2]]

    def learn(self, session: str, text: str) -> None:
        own, names = self.of.setdefault(session, Footprint()), set(_NAMES.findall(text))
        own.named |= names
        if _WRITES.search(text):
            own.written |= names

    def noticed(self, session: str, text: str) -> bool:
        """Whether it meets anything that another session was seen to do. What none of them did before, it must not do
        now: the orders so far would have rested on less."""
        names, writes = set(_NAMES.findall(text)), bool(_WRITES.search(text))
        own = self.of[session]
        assert names <= own.named, (session, names - own.named, "was not named when they came one after the other")
        assert not writes or names <= own.written, (session, names - own.written, "was not written before")
        if writes and names & self._opaque:
            return True
        if not names:
            return True
        others = [each for name, each in self.of.items() if name != session]
        return any(names & (each.named if writes else each.written) for each in others)
