"""Processes: searched for, with searches that were saved; and what is broken, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.console.pages.searching import ATTRIBUTE, PARAMETER, filters_of, words_of
from app.console.web.fields import Fields, address
from app.console.web.memory import RememberedBy
from app.console.web.page import Act, Done, Input, Page, Question, Visit
from app.db import transaction
from app.errors import BadRequest
from processes import errors, finding, listing, templates
from processes.filters import TIMES, parameters_of, state
from processes.finding import Found
from processes.states import ProcessState
from recovery import known
from recovery.rules import Broken
from recovery.rules import known as first_known

SHOWN = 50
#: How often a search is made again, for all who look at the same.
SEARCH_SECONDS, ERRORS_SECONDS = 1.0, 3.0
GROUPS = 50
#: Behind "more".
MORE = ("idempotency_key", "custom_id_prefix", "error_class", "fingerprint", *TIMES)
_LABELS = {
    "idempotency_key": "Idempotency key",
    "custom_id_prefix": "Its id begins with",
    "error_class": "Class of the error",
    "since": "Registered since",
    "until": "Registered before",
}


def _search(query: Fields) -> list[Found]:
    with transaction() as session:
        filters = replace(filters_of(session, query), before_id=query.number("before"))
        return finding.found(session, filters, SHOWN + 1)


_found = RememberedBy(_search, SEARCH_SECONDS).kept()


def _listed(visit: Visit) -> Mapping[str, Any]:
    for each in visit.query.texts("state"):
        state(each)
    wrong, rows = None, list[Found]()
    try:
        rows = _found.get(visit.query)
    except BadRequest as error:
        wrong = str(error)
    with transaction() as session:
        saved = templates.listed(session)
        names = [each.name for each in listing.actors(session)]
    chosen = visit.query.text("template")
    wanted = next((each.parameters for each in saved if each.name == chosen), [])
    kept = [pair for pair in visit.query.pairs if pair[1] and pair[0] != "before"]
    return {
        "rows": rows[:SHOWN],
        "older": rows[SHOWN - 1].id if len(rows) > SHOWN else None,
        "wrong": wrong,
        "filtered": bool(kept),
        "kept": "&".join(filter(None, [visit.query.changed({"before": None})])),
        "states": list(ProcessState),
        "templates": saved,
        "names": names,
        "parameters": [(each, f"{PARAMETER}{each}") for each in wanted],
        "more": [(word, _LABELS.get(word, word.replace("_", " ").capitalize())) for word in MORE],
        "opened": any(visit.query.text(word) for word in (*MORE, ATTRIBUTE)),
    }


def _groups(query: Fields) -> list[tuple[errors.Group, Any]]:
    with transaction() as session:
        found = errors.groups(session, name=query.text("name"), actor=query.text("actor"), limit=GROUPS)
        rules = known.listed(session)
    return [(each, first_known(rules, _broken(each))) for each in found]


def _broken(group: errors.Group) -> Broken:
    example = group.example
    of = (group.actor, group.type, example.message, group.fingerprint)
    return Broken(example.process_id, example.number, *of)


_by_kind = RememberedBy(_groups, ERRORS_SECONDS).kept()


def _errors(visit: Visit) -> Mapping[str, Any]:
    return {"groups": _by_kind.get(visit.query)}


def _ask_save(visit: Visit) -> Question:
    words = words_of(visit.query)
    says = [
        f"It searches for {', '.join(f'{word}={value}' for word, value in words.items())}.",
        "A name in braces in a value, as in shop={shop}, is a parameter: it is asked for when the search is used.",
    ]
    return Question(
        "Save this search",
        says if words else says[1:],
        "Save",
        [Input("saved_name", "Name", required=True, hint="In place of one that has it.")],
        obstacle=None if words else "Nothing is searched for: fill in the form first.",
        back=f"/processes?{visit.query.changed({})}",
    )


def _save(visit: Visit) -> Done:
    name = visit.form.needed("saved_name", templates.NAME_LIMIT)
    words = words_of(visit.query)
    if not words:
        raise BadRequest("nothing is searched for: there is nothing to save")
    with transaction() as session:
        replaced = templates.save(session, name, words)
    wanted = parameters_of(words)
    needs = f"; it asks for {', '.join(wanted)}" if wanted else ""
    done = f"The search {name} is {'replaced' if replaced else 'saved'}{needs}."
    return Done(done, address("/processes", template=name))


def _ask_remove(visit: Visit) -> Question:
    name = visit.query.needed("name")
    with transaction() as session:
        found = templates.get(session, name)
    says = [f"It searches for {', '.join(f'{word}={value}' for word, value in found.filters.items())}."]
    return Question(f"Remove the search {name}?", says, "Remove", danger=True, back="/processes")


def _remove(visit: Visit) -> Done:
    name = visit.query.needed("name")
    with transaction() as session:
        templates.remove(session, name)
    return Done(f"The search {name} is removed.", "/processes")


PAGES = (
    Page("errors", "/processes/errors", "errors.html", _errors),
    Page("processes", "/processes", "processes.html", _listed),
)
ACTS = (
    Act("save_search", "/processes/save", _ask_save, _save),
    Act("remove_search", "/processes/remove-search", _ask_remove, _remove),
)
