"""What the holder of a token may do. Pure.

| role | may |
|---|---|
| viewer | read everything that is not the state of a stage, and see the pages of the console |
| operator | everything |
| producer | read and advance entities of the control table, and put work into queues: of the names of its scope |
| actor | read and update states of `kind.stage`, and work as an actor: of the names of its scope |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from app.errors import BadRequest
from app.near import shown
from app.tokens.model import ROLES

NARROW = ("producer", "actor")
NAME_LIMIT, SCOPE_LIMIT, SCOPES_LIMIT = 100, 200, 100
ANY = "*"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_NO_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Action(StrEnum):
    #: Whatever is no state.
    READ = "read"
    #: The state of a stage; its name is `kind.stage`.
    STATE = "state"
    #: A parameter of an entity of the control table.
    ADVANCE = "advance"
    #: A job into a queue, or a process.
    ENQUEUE = "enqueue"
    #: Polling as an actor.
    ACT = "act"
    OPERATE = "operate"
    #: The pages of the console, which show everything but states.
    LOOK = "look"


_OF: dict[str, frozenset[Action]] = {
    "viewer": frozenset({Action.READ, Action.LOOK}),
    "operator": frozenset(Action),
    "producer": frozenset({Action.READ, Action.ADVANCE, Action.ENQUEUE}),
    "actor": frozenset({Action.STATE, Action.ACT}),
}


@dataclass(frozen=True)
class Holder:
    """Of a token that is valid."""

    name: str
    role: str
    #: Names that it is narrowed to; None: all.
    scope: tuple[str, ...] | None = None

    def may(self, action: Action, name: str) -> bool:
        return action in _OF.get(self.role, frozenset()) and self.covers(name)

    def denial(self, action: Action, name: str = "") -> str:
        """What whoever may not do this is told. `name`: of what, where they have named it."""
        narrowed = "" if self.scope is None else " with this scope"
        what = f"{action} {shown(name)}" if name else action
        return f"the token {self.name} of the role {self.role}{narrowed} may not do this ({what})"

    def covers(self, name: str) -> bool:
        return self.scope is None or any(_matches(each, name) for each in self.scope)


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith(ANY) else name == pattern


def checked_name(name: str) -> str:
    if type(name) is not str or len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
        raise BadRequest(
            f"token name {_told(name)} must be 1 to {NAME_LIMIT} letters, digits and . _ @ -, the first of them a "
            "letter or a digit"
        )
    return name


def checked_role(role: str) -> str:
    if role not in ROLES:
        raise BadRequest(f"role {_told(role)} is none: use {', '.join(ROLES)}")
    return role


def checked_scope(role: str, scope: Iterable[str] | None) -> list[str] | None:
    """In order, each once. None is all names; nothing at all would be none, which is surely not meant."""
    if scope is None:
        return None
    if role not in NARROW:
        raise BadRequest(
            f"a token of a {role} has no scope: only those of {' and '.join(NARROW)} are narrowed to names"
        )
    if isinstance(scope, str):
        raise BadRequest(f"scope={_told(scope)} must list names, as in ['offer.*']")
    found = sorted({_checked_pattern(each) for each in scope})
    if not 1 <= len(found) <= SCOPES_LIMIT:
        raise BadRequest(f"a scope of {len(found)} names: give 1 to {SCOPES_LIMIT}, or leave it out for all names")
    return found


def _checked_pattern(text: str) -> str:
    bad = type(text) is not str or not text.strip() or len(text) > SCOPE_LIMIT
    if bad or _NO_TEXT.search(text) or ANY in text[:-1]:
        raise BadRequest(
            f"scope {_told(text)} must be a name of 1 to {SCOPE_LIMIT} characters, with * at its end or nowhere, "
            "as in offer.score or offer.*"
        )
    return text


def _told(value: object) -> str:
    return shown(value) if isinstance(value, str) else f"{value!r:.100}"
