"""An entity: in the queues of which stages it is, who works on it, what stages keep beside it, what was saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from app.clock import moment
from app.console.web.fields import TEXT_LIMIT, Fields, address
from app.console.web.page import REASON, Act, Done, Input, Page, Question, Visit
from app.db import transaction
from app.errors import BadRequest, TooLarge
from app.outbox import listing as outbox
from app.outbox.model import Event
from stages import listing, lookup, operate, redriving, state_text
from stages.definition import SYSTEM
from stages.watched import kinds

#: Events are found by their numbers: of the latest so many, those of the entity.
LOOKED_THROUGH = 20_000
EVENTS = 10


def _named(query: Fields) -> tuple[str, str]:
    """Its kind and its id, with the blanks that it may have."""
    text = next((value for word, value in query.pairs if word == "id"), "")
    if not text:
        raise BadRequest("id is needed")
    if len(text) > TEXT_LIMIT:
        raise TooLarge(f"id is {len(text)} characters long, more than {TEXT_LIMIT}")
    with transaction() as session:
        kind = lookup.kind(session, query.needed("kind"))
    return kind, lookup.entity(kind, text)


def home(kind: str, entity_id: str) -> str:
    return address("/entity", kind=kind, id=entity_id)


def _shown(visit: Visit) -> Mapping[str, Any]:
    kind, text = _named(visit.query)
    with transaction() as session:
        visits = listing.visits_of(session, kind, text)
        events = _events(session, kind, text)
        found = {
            "kind": kind,
            "id": text,
            "visits": visits,
            "chains": [each for each in visits if each.chain is not None and each.hops > 1],
            "working": listing.working_on(session, kind, text),
            "states": [(each, _told(each.stored, visit)) for each in listing.states_of(session, kind, text)],
            "events": events,
        }
        return found | _version(session, kind, text, events)


def _events(session: Session, kind: str, text: str) -> list[outbox.Listed]:
    last = session.execute(sa.select(sa.func.max(Event.id))).scalar_one() or 0
    since = max(1, last - LOOKED_THROUGH)
    return list(outbox.recent(session, kind=kind, entity_id=text, since_id=since, limit=EVENTS))


def _version(session: Session, kind: str, text: str, events: list[outbox.Listed]) -> dict[str, Any]:
    """As its table says, where its model is here and can be read; else as its last event said."""
    unread = None
    if (of := kinds.get(kind)) is not None:
        try:
            with session.begin_nested():
                version = of.store.versions(session, [text]).get(text)
            return {"there": True, "unread": None, "entity_version": version}
        except ProgrammingError as error:
            unread = str(error.orig).strip().partition("\n")[0]
    return {"there": False, "unread": unread, "entity_version": events[0].version if events else None}


def _told(stored: Any, visit: Visit) -> str | None:
    """Only where its class is here, and only for an operator: a state is the stage's own."""
    if not visit.may_act or state_text.message_of(stored) is None:
        return None
    return state_text.text_of(stored)


def _stages(kind: str) -> list[lookup.Known]:
    with transaction() as session:
        known = lookup.known_stages(session)
    return [each for each in known if each.kind == kind and not each.removed]


def _ask_offer(visit: Visit) -> Question:
    kind, text = _named(visit.query)
    names = [each.name for each in _stages(kind)]
    says = [
        "It comes into the queue of the stage; if it is there already, the earlier of both times counts.",
        f"Offered to {SYSTEM}, all stages of {kind} are asked.",
    ]
    inputs = [
        Input("stage", "Stage", visit.query.text("stage") or SYSTEM, kind="select", options=[(n, n) for n in names]),
        Input("at", "When", "now", hint="now, a span such as 2h, or a time such as 2030-07-01T12:00:00Z."),
        Input("low", "Into the low lane, behind everything else", kind="checkbox"),
        REASON,
    ]
    return Question(f"Visit {kind} {text:.80}?", says, "Offer it", inputs, back=home(kind, text))


def _offer(visit: Visit) -> Done:
    kind, text = _named(visit.query)
    with transaction() as session:
        stage = lookup.of_kind(session, kind, visit.form.needed("stage"))
    when = visit.form.text("at") or "now"
    try:
        at = None if when == "now" else moment(when)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    low = visit.form.text("low") is not None
    new = operate.offer(stage, text, at, low=low, reason=visit.form.text("reason"))
    where = f"the queue of {stage.name}"
    return Done(f"It {'is in' if new else 'was already, for no later time, in'} {where}.", home(kind, text))


def _ask_redrive(visit: Visit) -> Question:
    kind, text = _named(visit.query)
    with transaction() as session:
        stage = lookup.of_kind(session, kind, visit.query.needed("stage"))
        found = [each for each in listing.visits_of(session, kind, text) if each.stage == stage.name]
    obstacle = None if found and found[0].state == "parked" else f"It is not parked in {stage.name}."
    if stage.removed:
        obstacle = f"The stage {stage.name} is not declared any more: no worker would visit for it."
    says = [f"{stage} visits it at once, with all attempts anew."]
    title = f"Visit {kind} {text:.80} again?"
    return Question(title, says, "Redrive", [REASON], obstacle=obstacle, back=home(kind, text))


def _redrive(visit: Visit) -> Done:
    kind, text = _named(visit.query)
    with transaction() as session:
        stage = lookup.of_kind(session, kind, visit.query.needed("stage"))
    if stage.removed:
        raise BadRequest(f"stage {stage} is not declared any more: no worker would visit for it")
    if not redriving.redrive_named(stage, [text], reason=visit.form.text("reason")):
        raise BadRequest(f"it is not parked in {stage.name} any more")
    return Done(f"{stage} visits it again.", home(kind, text))


PAGES = (Page("entity", "/entity", "entity.html", _shown),)
ACTS = (
    Act("offer_entity", "/entity/offer", _ask_offer, _offer),
    Act("redrive_entity", "/entity/redrive", _ask_redrive, _redrive),
)
