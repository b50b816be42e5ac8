"""Actors and deciders: what waits for them, and the settings by which they are dealt with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.console.web.fields import address
from app.console.web.page import REASON, Act, Done, Input, Page, Question, Undo, Visit
from app.db import transaction
from app.errors import BadRequest, NotFound
from processes import listing
from processes.listing import Listed
from processes.preferences import configure
from processes.telling import as_declared, setting, settings_of, typed

_FLAGS = (("true", "true"), ("false", "false"))
_HINTS = {
    "retry": "How often a task is tried; a number of attempts.",
    "fail_types": "Classes of errors that are results, with commas between them.",
    "rate_limit": "Hand-outs in a time, such as 10/s; or none.",
    "max_parallel": "Tasks in work at once; or none.",
    "task_timeout": "Such as 10min; or none.",
    "process_timeout": "Such as 1d; or none.",
}


def kind(each: Listed) -> str:
    return "decider" if each.decider else "outside" if each.outside else "actor"


def _listed(_: Visit) -> Mapping[str, Any]:
    with transaction() as session:
        found = listing.actors(session)
    return {"actors": [(each, kind(each)) for each in found]}


def _found(visit: Visit) -> Listed:
    name = visit.query.needed("name")
    with transaction() as session:
        found = listing.actors(session, name)
    if not found:
        raise NotFound(f"there is no actor and no decider {name!r:.100}")
    return found[0]


def _shown(visit: Visit) -> Mapping[str, Any]:
    each = _found(visit)
    rows = [
        (word, setting(each.settings[word]), setting(as_declared(word, each.declared.get(word))), word in each.changed)
        for word in settings_of(each.settings, decider=each.decider)
    ]
    return {"actor": each, "kind": kind(each), "rows": rows}


def _address(name: str) -> str:
    return address("/actor", name=name)


def _ask_set(visit: Visit) -> Question:
    each = _found(visit)
    return Question(
        f"Settings of {each.name}",
        ["They hold from the next hand-out on, for the whole cluster, until the code says something else than before."],
        "Set",
        [*(_input(word, each.settings[word]) for word in settings_of(each.settings, decider=each.decider)), REASON],
        back=_address(each.name),
    )


def _input(word: str, value: Any) -> Input:
    if isinstance(value, bool):
        return Input(word, word, typed(value), kind="select", options=_FLAGS)
    return Input(word, word, typed(value), hint=_HINTS.get(word, ""))


def _set(visit: Visit) -> Done:
    """Only what is other than it was."""
    each = _found(visit)
    now = {word: typed(each.settings[word]) for word in each.settings}
    given = {word: (visit.form.text(word) or "") for word in now if visit.form.has(word)}
    changes = {word: value for word, value in given.items() if value != now[word]}
    if not changes:
        raise BadRequest("nothing is other than it was")
    done = configure(each.name, changes, reason=visit.form.text("reason"))
    words = ", ".join(f"{word} is {setting(new)}, was {setting(old)}" for word, (old, new) in done.items())
    # Of retries a field has the number alone: put back by it, the pauses would be those of the default.
    before = {word: now[word] for word in done}
    undo = None if "retry" in done else Undo("set_actor", {"name": each.name, **before})
    return Done(f"{each.name}: {words}.", _address(each.name), undo)


def _ask_block(visit: Visit) -> Question:
    each = _found(visit)
    return Question(
        f"Block {each.name}?",
        ["No more of its tasks are handed out. What is in work ends as usual, and its answers are taken."],
        "Block",
        [REASON],
        obstacle="It is blocked already." if each.blocked else None,
        back=_address(each.name),
    )


def _block(visit: Visit) -> Done:
    name = _found(visit).name
    configure(name, {"blocked": True}, reason=visit.form.text("reason"))
    return Done(f"{name} is blocked.", _address(name), Undo("unblock_actor", {"name": name}, "Unblock"))


def _ask_unblock(visit: Visit) -> Question:
    each = _found(visit)
    return Question(
        f"Unblock {each.name}?",
        ["Its tasks are handed out again."],
        "Unblock",
        [REASON],
        obstacle=None if each.blocked else "It is not blocked.",
        back=_address(each.name),
    )


def _unblock(visit: Visit) -> Done:
    name = _found(visit).name
    configure(name, {"blocked": False}, reason=visit.form.text("reason"))
    return Done(f"{name} is open.", _address(name), Undo("block_actor", {"name": name}, "Block"))


PAGES = (
    Page("actors", "/actors", "actors.html", _listed),
    Page("actor", "/actor", "actor.html", _shown),
)
ACTS = (
    Act("set_actor", "/actor/set", _ask_set, _set),
    Act("block_actor", "/actor/block", _ask_block, _block),
    Act("unblock_actor", "/actor/unblock", _ask_unblock, _unblock),
)
